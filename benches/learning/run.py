"""Runs the rows about learning one after another, each beside its peers.

    cargo xtask bench learning
    cargo xtask bench learning --json figures.json --plots docs
    cargo xtask bench learning -- rl_ppo simulate

A row is a program in this folder, which can also be run alone. Each has a time limit, and nothing of it is
left running. The peers are installed once into an environment of their own; a peer that is not there is left
out, and its place in the table says so. A figure below what is asked for is marked; the exit status is 1 only
if a row does not come to its end.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import learning_peers
import plots
import results
from catalogue import ROWS, Row

HERE = Path(__file__).parent
#: In the environment of all that a row starts.
MARK_VARIABLE = "BENCH_LEARNING_RUN"


def main() -> int:
    """Runs the rows whose names contain one of the filters, all without one."""
    given = arguments()
    rows = [row for row in ROWS if not given.filters or any(word in row.name for word in given.filters)]
    if not rows:
        print("error: no row has such a name", file=sys.stderr)
        print(f"hint: the rows are {', '.join(row.name for row in ROWS)}", file=sys.stderr)
        return 2
    peers = given.peers_python
    if peers is None and not given.no_peers and any(row.has_peers for row in rows):
        peers = learning_peers.python(given.environments)
    began, records, failures = time.monotonic(), {}, []
    for position, row in enumerate(rows):
        minutes = (time.monotonic() - began) / 60
        say(f"[{position + 1}/{len(rows)}] {row.name}, after {minutes:.1f} min; at most {row.limit_s} s")
        figures, failure = run_row(row, given.quick, peers)
        if failure:
            failures.append(f"{row.name}: {failure}")
            say(failures[-1])
        else:
            records[row.name] = figures
            # A run that is ended half-way leaves what it has measured.
            write(given.json, records, given.quick)
    print_table(records, failures)
    if given.plots:
        for file in plots.draw(records, given.plots):
            print(f"wrote {file}")
    return 1 if failures else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a figure to quote")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--plots", type=Path, help="also draw the figures into this folder")
    parser.add_argument("--peers-python", type=Path, help="an interpreter that has the peers")
    parser.add_argument("--no-peers", action="store_true", help="Aktis alone")
    parser.add_argument("--environments", type=Path, default=Path("target/bench-learning"))
    parser.add_argument("filters", nargs="*", metavar="FILTER", help="only rows whose names contain it")
    return parser.parse_args()


def run_row(row: Row, quick: bool, peers: Path | None) -> tuple[list[dict[str, object]], str]:
    """Runs one row: its figures, and why there are none."""
    missing = row.missing()
    if missing:
        return [], f"not run: {missing}"
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, str(HERE / row.program), *(row.quick if quick else row.full)]
        command += ["--json", str(file)]
        if peers is not None and row.has_peers:
            command += ["--peers-python", str(peers)]
        environment = {**os.environ, MARK_VARIABLE: mark}
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        try:
            status = process.wait(timeout=row.limit_s)
        except subprocess.TimeoutExpired:
            learning_peers.sweep(f"{MARK_VARIABLE}={mark}")
            process.wait()
            return [], f"did not end within {row.limit_s} s"
        finally:
            left = learning_peers.sweep(f"{MARK_VARIABLE}={mark}")
            if left:
                say(f"{row.name}: {left} processes were left running, and are killed")
        if status != 0 or not file.exists():
            return [], f"exit status {status}"
        return json.loads(file.read_text()), ""


def write(file: Path | None, records: dict[str, list[dict[str, object]]], quick: bool) -> None:
    if file is None:
        return
    machine = {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[2],
    }
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text(json.dumps({"quick": quick, "machine": machine, "rows": records}, indent=1) + "\n")
    os.replace(unfinished, file)


def print_table(records: dict[str, list[dict[str, object]]], failures: list[str]) -> None:
    figures = [figure for found in records.values() for figure in results.read(found)]
    width = min(shutil.get_terminal_size().columns, 110)
    print("\n" + "=" * width)
    print("\n".join(results.lines(figures)))
    marks = [figure.mark(demand) for figure in figures for demand in figure.demands]
    reached = marks.count("ok") + marks.count("goal")
    print(
        f"\n{reached} of {len(marks)} demands reached, {marks.count('goal')} of them with the goal; "
        f"{marks.count('MISSED')} missed, {marks.count('no peer')} without their peer"
    )
    for failure in failures:
        print(f"failed: {failure}")


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
