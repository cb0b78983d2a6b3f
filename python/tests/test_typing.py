"""`ObjectRef[T]` and `RemoteFunction[P, T]` keep the types of arguments and results, as mypy sees them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent / "typing" / "sample.py"


@pytest.mark.timeout(240)
def test_mypy_sees_the_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    # The sources: mypy refuses a path that packages are installed in.
    home = Path(__file__).parent.parent
    copy = tmp_path / "typing_sample.py"
    copy.write_text(SAMPLE.read_text())
    arguments = [
        "--strict",
        "--show-error-codes",
        "--no-error-summary",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments, str(copy)],
        cwd=home,
        capture_output=True,
        text=True,
        env={"MYPYPATH": str(home), "PATH": "/usr/bin:/bin"},
        timeout=200,
    )
    found: dict[int, str] = {}
    for number, text in re.findall(r"typing_sample\.py:(\d+): (.*)", result.stdout):
        found.setdefault(int(number), text)
    for number, line in enumerate(SAMPLE.read_text().splitlines(), 1):
        said = found.pop(number, "")
        if line.lstrip().startswith("reveal_type"):
            wanted = line.partition("  # ")[2]
            seen = said.partition("Revealed type is ")[2].strip('"').replace("builtins.", "")
            assert seen == wanted, f"line {number}: {line}\n{result.stdout}"
        elif "# error" in line:
            assert "error:" in said, f"line {number}: {line}\n{result.stdout}"
        else:
            assert not said, f"line {number}: {line}\n{said}"
    assert not found
