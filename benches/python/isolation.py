"""A process for each measurement, and nothing of it left afterwards."""

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import peers
from row import Row

#: In the environment of all that a measurement starts.
MARK_VARIABLE = "BENCH_PYTHON_RUN"
RESULT = "RESULT "


@dataclass(frozen=True)
class Outcome:
    """Values, or why there are none; and what was left running."""

    values: Mapping[str, float]
    failure: str = ""
    leftovers: int = 0


def measure(interpreter: Path, row: Row, peer: str, seconds: float, quick: bool) -> Outcome:
    """Runs one row with one peer."""
    mark = uuid.uuid4().hex
    child = [str(interpreter), str(Path(__file__).parent / "child.py"), peer, row.name, str(seconds)]
    process = subprocess.Popen(
        child + (["--quick"] if quick else []),
        env={**peers.environment(), MARK_VARIABLE: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    timed_out = False
    try:
        output, errors = process.communicate(timeout=row.timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        sweep(mark, patience=0)
        output, errors = process.communicate()
    leftovers = sweep(mark, patience=5)
    results = [line for line in output.splitlines() if line.startswith(RESULT)]
    if results and process.returncode == 0:
        return Outcome(json.loads(results[-1].removeprefix(RESULT)), leftovers=leftovers)
    lines = [line for line in errors.splitlines() if line.strip()]
    reason = lines[-1] if lines else "no message"
    if timed_out:
        reason = f"did not end within {row.timeout:.0f} s; last: {reason}"
    return Outcome(
        {}, f"{row.name}: exit code {process.returncode}: {reason}\n" + "\n".join(lines[-12:]), leftovers
    )


def sweep(mark: str, patience: float) -> int:
    """Waits for what carries the mark to end, then kills it; how many had to be killed."""
    deadline = time.monotonic() + patience
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(left)


def marked(mark: str) -> list[int]:
    """The processes with the mark in their environment."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
