"""What the rows about `aktis.rl` share: seeds in processes of their own, peers by turns, and the table.

A row is a program. With `--one SEED` it trains once and prints a line of JSON; without, it starts itself once
per seed, and the peer's program after each, so that what the machine does meanwhile meets both.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEEDS = 5


def train_once(make: Callable[[int], Any], seed: int) -> dict[str, Any]:
    """Trains with one seed. The time is that of making the algorithm and of training, without imports."""
    import aktis.rl.registry  # noqa: F401  (loads torch, which is not a part of learning)

    began = time.perf_counter()
    algorithm = make(seed)
    result = algorithm.train()
    seconds = time.perf_counter() - began
    return {
        "seed": seed,
        "solved": result.solved,
        "seconds": seconds,
        "steps": result.steps,
        "greedy": algorithm.evaluate(1_000, seed=1_000_000).mean,
    }


def run(program: list[str], seed: int) -> dict[str, Any]:
    """What `program --one SEED` prints on its last line."""
    done = subprocess.run([*program, "--one", str(seed)], capture_output=True, text=True, cwd=HERE)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(program)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{Path(program[-1]).name}: {found}", file=sys.stderr, flush=True)
    return found


def row(
    title: str, file: str, make: Callable[[int], Any], limit: float | None, peer: str | None = None
) -> int:
    """The row's program. `limit` is what the median may take, in seconds; `peer` is the peer's program."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--one", type=int, metavar="SEED", help="train once, and print a line of JSON")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--peers-python", help="an interpreter that has the peer; without it, no peer")
    parser.add_argument("--json", type=Path, help="also write all runs to this file")
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(train_once(make, given.one)))
        return 0
    runs: dict[str, list[dict[str, Any]]] = {"aktis": []}
    for seed in range(1, given.seeds + 1):
        runs["aktis"].append(run([sys.executable, file], seed))
        if peer is not None and given.peers_python:
            runs.setdefault("peer", []).append(run([given.peers_python, str(HERE / peer)], seed))
    print(title)
    for name, found in runs.items():
        times = [one["seconds"] for one in found]
        solved = sum(one["solved"] for one in found)
        shown = ", ".join(f"{one['seconds']:.1f} s ({one['steps']:,} steps)" for one in found)
        print(f"  {name}: {solved} of {len(found)} solved, median {statistics.median(times):.2f} s: {shown}")
        later = ", ".join(f"{one['greedy']:.0f}" for one in found)
        print(f"    likeliest actions afterwards, in fresh episodes that decide about nothing: {later}")
    medians = {name: statistics.median(one["seconds"] for one in found) for name, found in runs.items()}
    if "peer" in medians:
        print(f"  the peer takes {medians['peer'] / medians['aktis']:.1f} times as long")
    if given.json:
        given.json.write_text(json.dumps({"title": title, "runs": runs}, indent=1) + "\n")
    reached = all(one["solved"] for one in runs["aktis"]) and (limit is None or medians["aktis"] <= limit)
    print(
        f"  {'reached' if reached else 'MISSED'}: all seeds"
        + (f", median at most {limit:g} s" if limit else "")
    )
    return 0 if reached else 1
