"""`cargo xtask bench python`: Aktis beside Ray, Dask and multiprocessing, measured by turns.

Rows are measured one after another. In each round of a row every peer has its turn, in a process of its own,
and the next round goes through them in the opposite order. So what the machine does meanwhile meets all of
them, and ratios mean more than values.
"""

import argparse
import os
import sys
from pathlib import Path

import isolation
import peers
import report
from figure import PEERS, Figure
from rows import ROWS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Aktis beside Ray, Dask and multiprocessing.")
    parser.add_argument("--quick", action="store_true", help="one short round: a look, not a figure to quote")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--rounds", type=int, help="how often each row is measured with each peer")
    parser.add_argument("--seconds", type=float, help="how long one peer is measured in one round of a row")
    parser.add_argument("--peers", default=",".join(PEERS), help="only these, separated by commas")
    parser.add_argument("--ray-python", type=Path, help="an interpreter that has ray, dask and distributed")
    parser.add_argument("--environments", type=Path, default=Path("target/bench-python"))
    parser.add_argument("rows", nargs="*", help="only rows whose names contain one of these words")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    wanted = given.peers.split(",")
    if unknown := set(wanted) - set(PEERS):
        print(
            f"error: unknown peers: {', '.join(sorted(unknown))}\nhint: they are {', '.join(PEERS)}",
            file=sys.stderr,
        )
        return 2
    rows = [row for row in ROWS if not given.rows or any(word in row.name for word in given.rows)]
    if not rows:
        names = ", ".join(row.name for row in ROWS)
        print(f"error: no row has such a name\nhint: the rows are {names}", file=sys.stderr)
        return 2

    interpreters = {peer: Path(sys.executable) for peer in wanted}
    if {"ray", "dask"} & set(wanted):
        others = given.ray_python or peers.others_python(given.environments)
        interpreters |= {peer: others for peer in wanted if peer in ("ray", "dask")}
    rounds = given.rounds or (1 if given.quick else 3)
    seconds = given.seconds or (0.5 if given.quick else 2.0)

    figures: list[Figure] = []
    for position, row in enumerate(rows):
        measured = {shape.key: Figure(shape) for shape in row.figures}
        figures += measured.values()
        order = [peer for peer in PEERS if peer in wanted and peer in row.measures]
        for number in range(rounds):
            for peer in order if number % 2 == 0 else reversed(order):
                say(f"[{position + 1}/{len(rows)}] {row.name}: {peer}, round {number + 1} of {rounds}")
                outcome = isolation.measure(interpreters[peer], row, peer, seconds, given.quick)
                if outcome.leftovers and peer == "aktis":
                    say(f"{row.name}: {outcome.leftovers} processes of aktis had to be killed\n")
                if outcome.failure:
                    for figure in measured.values():
                        figure.failures[peer] = outcome.failure
                for key, value in outcome.values.items():
                    measured[key].add(peer, number, value)
    say("")
    print(report.table(figures, [peer for peer in PEERS if peer in wanted]))
    if given.json:
        given.json.write_text(report.json_lines(figures))
    if reasons := report.failures(figures):
        print(f"\n{reasons}", file=sys.stderr)
        return 1
    return 0


def say(text: str) -> None:
    """Shows where we are; on a terminal each line takes the place of the one before."""
    if os.isatty(2):
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text.rstrip("\n"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
