"""Programs announce the nodes that they have started, and others find them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aktis import _running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the nodes of this test are announced."""
    monkeypatch.setenv("AKTIS_DIRECTORY", str(tmp_path / "aktis"))
    return tmp_path / "aktis-programs"


def test_the_youngest_is_found_until_it_is_withdrawn(home: Path) -> None:
    first = _running.Announcement("one", "127.0.0.1:1")
    second = _running.Announcement("two", "127.0.0.1:2")
    youngest, named = _running.find("auto"), _running.find("127.0.0.1:1")
    assert youngest is not None and (youngest.address, youngest.pid) == ("127.0.0.1:2", os.getpid())
    assert named is not None and named.directory == "one"
    assert _running.find("127.0.0.1:3") is None
    second.withdraw()
    second.withdraw()
    left = _running.find("auto")
    assert left is not None and left.directory == "one"
    first.withdraw()
    assert _running.find("auto") is None and not home.exists()


def test_what_a_killed_program_announced_goes_when_somebody_looks(home: Path) -> None:
    announce = (
        "import os; from aktis import _running; _running.Announcement('d', 'h:1'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", announce])
    assert done.returncode == -9 and len(list(home.iterdir())) == 1
    assert _running.find("auto") is None and not home.exists()


def test_programs_that_come_and_go_at_once_do_not_lose_a_file(home: Path) -> None:
    turns = """
from aktis import _running
for turn in range(300):
    mine = _running.Announcement(str(turn), "127.0.0.1:1")
    assert _running.find("auto") is not None
    mine.withdraw()
"""
    started = [subprocess.Popen([sys.executable, "-c", turns]) for _ in range(4)]
    assert [program.wait(60) for program in started] == [0] * 4
    assert not home.exists()
