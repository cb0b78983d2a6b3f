"""What the rows about `aktis.rl` share: seeds in processes of their own, and peers by turns.

A row is a program. With `--one SEED` it trains once and prints a line of JSON; without, it starts itself once
per seed, and the peers' programs after it, so that what the machine does meanwhile meets all of them.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from results import OURS, Demand, Figure, finish

HERE = Path(__file__).parent
SEEDS = 5
#: A run that has not solved its task by then is ended, and counts with this time.
RUN_SECONDS_MAX = 300


def train_once(make: Callable[[int], Any], seed: int) -> dict[str, Any]:
    """Trains with one seed. The time is that of making the algorithm and of training, without imports."""
    import aktis.rl.registry  # noqa: F401  (loads torch, which is not a part of learning)

    curve: list[tuple[float, int, float]] = []

    def note(algorithm: Any) -> None:
        if algorithm.recent:
            passed = time.perf_counter() - began
            curve.append((round(passed, 3), algorithm.steps, round(algorithm.mean_return, 2)))

    began = time.perf_counter()
    algorithm = make(seed)
    result = algorithm.train(callback=note)
    seconds = time.perf_counter() - began
    return {
        "seed": seed,
        "solved": result.solved,
        "seconds": seconds,
        "steps": result.steps,
        "greedy": algorithm.evaluate(200, seed=1_000_000).mean,
        "curve": curve[:: max(1, len(curve) // 100)],
    }


def run(program: list[str], seed: int) -> dict[str, Any] | None:
    """What `program --one SEED` prints on its last line; None, with its error on stderr, if it fails."""
    try:
        done = subprocess.run(
            [*program, "--one", str(seed)],
            capture_output=True,
            text=True,
            cwd=HERE,
            timeout=RUN_SECONDS_MAX + 60,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        print(f"{' '.join(program)} was not done after {RUN_SECONDS_MAX + 60} s", file=sys.stderr)
        return None
    except (IndexError, ValueError):
        print(f"{' '.join(program)} failed:\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return None
    shown = {name: value for name, value in found.items() if name != "curve"}
    print(f"{Path(program[1]).name}: {shown}", file=sys.stderr, flush=True)
    return found


def row(
    title: str,
    file: str,
    make: Callable[[int], Any],
    limit: float,
    goal: float | None = None,
    peers: Mapping[str, tuple[str, float, int]] | None = None,
) -> int:
    """The row's program. `limit` is the most that the median may take, in seconds.

    `peers` has, by name, the program of each, how many times as long it has to take, and its most seeds.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--one", type=int, metavar="SEED", help="train once, and print a line of JSON")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--peers-python", help="an interpreter that has the peers; without it, no peers")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--curves", type=Path, help="also write all runs, with their curves, to this file")
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(train_once(make, given.one)))
        return 0
    peers = peers or {}
    runs: dict[str, list[dict[str, Any] | None]] = {OURS: [], **{name: [] for name in peers}}
    for seed in range(1, given.seeds + 1):
        runs[OURS].append(run([sys.executable, file], seed))
        for name, (program, _, seeds) in peers.items():
            if given.peers_python and seed <= seeds:
                runs[name].append(run([given.peers_python, str(HERE / program)], seed))
    if given.curves:
        given.curves.write_text(json.dumps(runs) + "\n")
    demands = [Demand(limit, goal=goal), *(Demand(times, name) for name, (_, times, _) in peers.items())]
    return finish(figures(title, runs, tuple(demands), given.seeds), given.json)


def figures(
    title: str, runs: Mapping[str, list[dict[str, Any] | None]], demands: tuple[Demand, ...], seeds: int
) -> list[Figure]:
    """The median time, and how many seeds have solved the task. A failed run counts as the longest."""
    times = {
        name: [run["seconds"] if run else float(RUN_SECONDS_MAX) for run in found]
        for name, found in runs.items()
    }
    medians: dict[str, float | None] = {
        name: statistics.median(each) if each and any(runs[name]) else None for name, each in times.items()
    }
    solved: dict[str, float | None] = {
        name: float(sum(bool(run and run["solved"]) for run in found)) if found else None
        for name, found in runs.items()
    }
    greedy = ", ".join(f"{run['greedy']:.0f}" if run else "failed" for run in runs[OURS])
    remark = f"likeliest actions afterwards, in fresh episodes that decide about nothing: {greedy}"
    for name, found in runs.items():
        if name != OURS and solved[name] is not None and solved[name] != len(found):
            remark += f"; {name} solved {solved[name]:.0f} of {len(found)}: its median is a lower bound"
    return [
        Figure(f"{title}, median", "s", medians, demands, less_is_better=True, remark=remark, samples=times),
        Figure(f"{title}, solved", f"of {seeds} seeds", {OURS: solved[OURS]}, (Demand(seeds),)),
    ]
