"""Measures a figure with several peers by turns: each turn is a process, and the order alternates.

A row is a program with a function for each peer. Aktis runs with the interpreter that runs the row, the
others with the one of `--peers-python`, which has to have them.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from results import OURS, Demand, Figure, finish

RESULT = "RESULT "
TURN_SECONDS_MAX = 120

#: How many seconds to measure -> steps per second.
Measure = Callable[[float], float]


def rate(seconds: float, steps_of_one: int, run_one: Callable[[], object]) -> float:
    """Steps per second of `run_one`, which takes so many, after a first call that does not count."""
    run_one()
    calls, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        run_one()
        calls += 1
    return calls * steps_of_one / passed


def arguments(title: str) -> argparse.ArgumentParser:
    """The options that such rows share."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--peers-python", type=Path, help="an interpreter that has the peers")
    parser.add_argument("--rounds", type=int, default=3, help="how many turns each peer has")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a turn measures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    return parser


def run_row(
    given: argparse.Namespace,
    name: str,
    measures: Mapping[str, Measure],
    program: list[str],
    demands: tuple[Demand, ...] = (),
) -> int:
    """Runs the row `program`, or one turn of it; the exit status."""
    if given.turn:
        print(f"{RESULT}{measures[given.turn](given.seconds)}")
        return 0
    found: dict[str, list[float]] = {peer: [] for peer in measures}
    for turn in range(given.rounds):
        for peer in list(measures)[:: -1 if turn % 2 else 1]:
            interpreter = sys.executable if peer.startswith(OURS) else given.peers_python
            if interpreter is None:
                continue
            value = one_turn([str(interpreter), *program, "--turn", peer, "--seconds", str(given.seconds)])
            if value is not None:
                found[peer].append(value)
    medians = {peer: statistics.median(values) if values else None for peer, values in found.items()}
    return finish([Figure(name, "steps/s", medians, demands, samples=found)], given.json)


def one_turn(command: list[str]) -> float | None:
    """The value that a turn prints, or `None` with its error on standard error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TURN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        print(f"no result after {TURN_SECONDS_MAX} s: {' '.join(command)}", file=sys.stderr)
        return None
    values = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not values:
        print(f"{' '.join(command)}:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    return float(values[-1].removeprefix(RESULT))
