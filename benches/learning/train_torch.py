"""TorchTrainer with two workers beside `torchrun` on the same code: pictures per second, and the loss curve.

The two take turns. A rate is that of the training alone, without the start of the processes; `whole` is the
time from the start of the program to its end.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import Demand, Figure, finish

WORKERS = 2
#: Rounding of float32, over a run.
LOSS_APART_MAX = 1e-4
HERE = os.path.dirname(os.path.abspath(__file__))


def torchrun(epochs: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}"]
    command += [os.path.join(HERE, "train_net.py"), str(epochs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return timed(command, environment)


def aktis(epochs: int) -> dict[str, Any]:
    return timed([sys.executable, os.path.abspath(__file__), "--one", str(epochs)], dict(os.environ))


def timed(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return {**json.loads(lines[-1]), "whole": time.perf_counter() - began}


def one(epochs: int) -> None:
    """In a process of its own: one run with Aktis."""
    import aktis
    import train_net
    from aktis import train
    from aktis.train import RunConfig, ScalingConfig
    from aktis.train.torch import TorchTrainer

    def loop(config: dict[str, Any]) -> None:
        train.report(train_net.train(config["epochs"]))

    aktis.init(num_cpus=WORKERS)
    with tempfile.TemporaryDirectory() as storage:
        trainer = TorchTrainer(
            loop,
            train_loop_config={"epochs": epochs},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(storage_path=storage, verbose=0),
        )
        print(json.dumps(trainer.fit().metrics))
    aktis.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        one(given.one)
        return 0
    ours, theirs = [], []
    for _ in range(given.rounds):
        ours.append(aktis(given.epochs))
        theirs.append(torchrun(given.epochs))
    samples = {"aktis": [run["rate"] for run in ours], "torchrun": [run["rate"] for run in theirs]}
    whole = {name: [run["whole"] for run in runs] for name, runs in (("aktis", ours), ("torchrun", theirs))}
    apart = max(abs(a - b) for a, b in zip(ours[0]["losses"], theirs[0]["losses"], strict=True))
    count = len(ours[0]["losses"])
    title = f"TorchTrainer, {WORKERS} workers, a convolutional net"
    rates = {name: statistics.median(values) for name, values in samples.items()}
    seconds = {name: statistics.median(values) for name, values in whole.items()}
    figures = [
        Figure(title, "pictures/s", rates, (Demand(0.95, "torchrun"),), samples=samples),
        Figure(f"{title}: the whole program", "s", seconds, less_is_better=True, samples=whole),
        Figure(
            f"{title}: largest difference of {count} losses",
            "in the loss",
            {"aktis": apart},
            (Demand(LOSS_APART_MAX),),
            less_is_better=True,
        ),
    ]
    return finish(figures, given.json)


if __name__ == "__main__":
    sys.exit(main())
