"""MuJoCo's HalfCheetah with evolution strategies: steps/s in two actors, beside two plain processes.

Both run the same evaluation of perturbed policies (`aktis.rl.population.Evaluator`). `aktis.rl.ES` also
ranks, sums the noise over its tree of aggregators and updates the weights; the plain processes only play. The
row needs `gymnasium[mujoco]`, and runs with the interpreter of `--peers-python`, to which it adds Aktis.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import OURS, Demand, Figure, finish

ENV = "HalfCheetah-v5"
PROCESSES = 2
#: As many as `ESConfig` has by default: both actors wait for each other once per generation.
PAIRS = 32
TURN_SECONDS_MAX = 120
RESULT = "RESULT "


def make() -> Any:
    import aktis.rl

    return aktis.rl.ES(
        ENV, seed=1, actors=PROCESSES, pairs=PAIRS, episodes_per_policy=1, hidden=(64, 64), total_steps=10**9
    )


def with_aktis(seconds: float) -> float:
    """Steps per second of generations, after a first one that does not count."""
    import aktis

    aktis.init(num_cpus=PROCESSES)
    es = make()
    first: list[tuple[float, int]] = []
    last: list[tuple[float, int]] = []

    def look(es: Any) -> bool:
        last[:] = [(time.perf_counter(), es.steps)]
        if not first:
            first.extend(last)
        return last[0][0] - first[0][0] >= seconds

    es.train(progress=False, callback=look)
    return (last[0][1] - first[0][1]) / (last[0][0] - first[0][0])


def with_processes(seconds: float) -> float:
    """Steps per second of as many processes that play with the same policies, without Aktis between them."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(PROCESSES)
    rates = context.Queue()
    players = [
        context.Process(target=play, args=(number, seconds, barrier, rates)) for number in range(PROCESSES)
    ]
    for player in players:
        player.start()
    total = sum(rates.get(timeout=TURN_SECONDS_MAX) for _ in players)
    for player in players:
        player.join()
    return total


def play(number: int, seconds: float, barrier: Any, rates: Any) -> None:
    from aktis.rl.population import Evaluator

    es = make()
    config = es.config
    sizes = [es.spaces.observation_size, *config.hidden, es.spaces.action_size]
    evaluator = Evaluator(
        *(es.environment, es.spaces, None, sizes, config.activation),
        *(config.episodes_per_policy, config.sigma),
    )
    weights = es.weights.detach().numpy().copy()
    policies = 2 * PAIRS // PROCESSES
    share = (number * policies, (number + 1) * policies)
    evaluator.play(weights, 0, *share)
    barrier.wait()
    steps, generation, began = 0, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        generation += 1
        steps += evaluator.play(weights, generation, *share)[1]
    rates.put(steps / (time.perf_counter() - began))


MEASURES = {OURS: with_aktis, "two plain processes": with_processes}


def turn(peer: str, interpreter: Path, seconds: float) -> float | None:
    """One turn in a process of its own; None, with its error on standard error, if it fails."""
    package = Path(__import__("aktis").__file__).parent.parent
    command = [str(interpreter), str(Path(__file__).resolve()), "--turn", peer, "--seconds", str(seconds)]
    # MuJoCo writes a log into the working directory.
    elsewhere = tempfile.gettempdir()
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=elsewhere,
            capture_output=True,
            text=True,
            timeout=TURN_SECONDS_MAX + seconds,
        )
    except subprocess.TimeoutExpired:
        print(f"{peer}: no result after {TURN_SECONDS_MAX + seconds:.0f} s", file=sys.stderr)
        return None
    values = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not values:
        print(f"{peer}:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    return float(values[-1].removeprefix(RESULT))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", type=Path, help="an interpreter with gymnasium[mujoco] and torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="how long a turn measures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--turn", choices=list(MEASURES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn:
        print(f"{RESULT}{MEASURES[given.turn](given.seconds)}")
        return 0
    interpreter = given.peers_python or Path(sys.executable)
    found: dict[str, list[float]] = {peer: [] for peer in MEASURES}
    for number in range(given.rounds):
        for peer in list(MEASURES)[:: -1 if number % 2 else 1]:
            value = turn(peer, interpreter, given.seconds)
            if value is not None:
                found[peer].append(value)
    medians = {peer: statistics.median(values) if values else None for peer, values in found.items()}
    name = f"{ENV} by ES in {PROCESSES} actors"
    demands = (Demand(0.95, "two plain processes"),)
    return finish([Figure(name, "steps/s", medians, demands, samples=found)], given.json)


if __name__ == "__main__":
    sys.exit(main())
