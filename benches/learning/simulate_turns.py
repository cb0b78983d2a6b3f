"""Measures a figure with several peers by turns: each turn is a process, and the order alternates.

A row is a program with a function for each peer. Aktis runs with the interpreter that runs the row, the
others with the one of `--peers-python`, which has to have them.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

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


def run_row(title: str, measures: Mapping[str, Measure], program: str) -> None:
    """Runs the row `program`, or one turn of it."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--peers-python", type=Path, help="an interpreter that has the peers")
    parser.add_argument("--rounds", type=int, default=3, help="how many turns each peer has")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a turn measures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--turn", choices=list(measures), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn:
        print(f"{RESULT}{measures[given.turn](given.seconds)}")
        return
    found: dict[str, list[float]] = {peer: [] for peer in measures}
    for number in range(given.rounds):
        for peer in list(measures)[:: -1 if number % 2 else 1]:
            interpreter = sys.executable if peer.startswith("aktis") else given.peers_python
            if interpreter is None:
                continue
            value = one_turn([str(interpreter), program, "--turn", peer, "--seconds", str(given.seconds)])
            if value is not None:
                found[peer].append(value)
    ours = statistics.median(found["aktis"]) if found["aktis"] else float("nan")
    print(f"{title}: median of {given.rounds} turns, steps/s")
    for peer, values in found.items():
        if values:
            middle = statistics.median(values)
            print(f"  {peer:<28}{middle:>14,.0f}   aktis is {ours / middle:.1f} times as fast")
        else:
            print(f"  {peer:<28}{'not measured':>14}")
    if given.json:
        given.json.write_text(json.dumps({"title": title, "steps_per_second": found}, indent=1))


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
