"""Priorities: of what waits, the most urgent runs first."""

from pathlib import Path
from typing import Any

import pytest

import aktis
from support import Caller, Latch, calls, get, wait_until


@pytest.fixture(autouse=True)
def one_cpu(no_session: None) -> None:
    aktis.init(num_cpus=1)


@aktis.remote
def hold(latch: Latch) -> None:
    latch.wait()


@aktis.remote
def note(diary: Path, word: str) -> None:
    with diary.open("a") as file:
        file.write(word + "\n")


def busy(latch: Latch) -> Any:
    """Something that keeps the only CPU until the latch is opened."""
    ref = hold.remote(latch)
    latch.wait_for_arrivals(1)
    return ref


def test_all_of_the_more_urgent_run_before_all_of_the_less_urgent(latch: Latch, tmp_path: Path) -> None:
    running = busy(latch)
    diary = tmp_path / "diary"
    refs = [note.options(priority=-1).remote(diary, "later") for _ in range(100)]
    refs += [note.remote(diary, "usual") for _ in range(100)]
    refs += [note.options(priority=5).remote(diary, "urgent") for _ in range(100)]
    text = "ahead, with a higher priority: 200 tasks"
    wait_until(lambda: text in aktis.explain(refs[0]), what="the reason to be told")
    latch.open()
    get([running, *refs])
    assert diary.read_text().split() == ["urgent"] * 100 + ["usual"] * 100 + ["later"] * 100


def test_priorities_count_for_tasks_of_tasks(latch: Latch, tmp_path: Path) -> None:
    @aktis.remote(priority=1)
    def parent(diary: Path) -> None:
        later = note.options(priority=-1).remote(diary, "later")
        urgent = note.options(priority=2).remote(diary, "urgent")
        aktis.get([later, urgent])

    running = busy(latch)
    diary = tmp_path / "diary"
    usual = note.remote(diary, "usual")
    nested = parent.remote(diary)
    wait_until(lambda: "higher priority" in aktis.explain(usual), what="the reason to be told")
    latch.open()
    get([running, usual, nested])
    assert diary.read_text().split() == ["urgent", "usual", "later"]


def test_actors_get_their_places_in_order_of_priority(latch: Latch) -> None:
    running = busy(latch)
    later = Caller.options(num_cpus=1).remote()
    urgent = Caller.options(num_cpus=1, priority=1).remote()
    wait_until(lambda: "higher priority" in aktis.explain(later), what="the reason to be told")
    latch.open()
    get([running, urgent.pid.remote()])
    assert "in use by 1 actor" in aktis.explain(later)
    aktis.kill(urgent)
    get(later.pid.remote())


def test_a_worker_serves_tasks_of_all_priorities() -> None:
    import os

    pids = {get(calls.options(priority=priority).remote(os.getpid)) for priority in (0, 3, -3, 0)}
    assert len(pids) == 1
