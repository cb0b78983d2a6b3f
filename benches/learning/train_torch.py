"""TorchTrainer with two workers beside `torchrun` on the same code: pictures per second, and the loss curve.

The two take turns. A rate is that of the training alone, without the start of the processes; `whole` is the
time from the start of the program to its end. Give `--json` for one line of JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

WORKERS = 2
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
    import train_net

    import aktis
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        one(given.one)
        return
    ours, theirs = [], []
    for _ in range(given.rounds):
        ours.append(aktis(given.epochs))
        theirs.append(torchrun(given.epochs))
    ratios = [mine["rate"] / other["rate"] for mine, other in zip(ours, theirs)]
    apart = max(abs(a - b) for a, b in zip(ours[0]["losses"], theirs[0]["losses"]))
    found = {
        "row": "TorchTrainer, 2 workers, beside torchrun",
        "aktis_pictures_per_s": statistics.median(run["rate"] for run in ours),
        "torchrun_pictures_per_s": statistics.median(run["rate"] for run in theirs),
        "ratio": statistics.median(ratios),
        "aktis_whole_s": statistics.median(run["whole"] for run in ours),
        "torchrun_whole_s": statistics.median(run["whole"] for run in theirs),
        "losses": len(ours[0]["losses"]),
        "largest_difference_of_losses": apart,
        "last_losses": [ours[0]["losses"][-1], theirs[0]["losses"][-1]],
    }
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
