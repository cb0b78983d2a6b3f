"""Seconds from kill -9 of a training worker to the first report after it, and whether the loss is the same.

A TorchTrainer with two workers saves a checkpoint in each epoch. The last worker kills itself in the middle
of an epoch. The figure is from the kill to the report of that epoch by the new workers, with the loss of the
undisturbed run beside it. `--preload` forks workers with torch. `--gpu` trains with NCCL in as many workers
as there are GPUs: a check for machines that have some.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import Demand, Figure, finish

EPOCHS = 5
KILLED_IN = 3
STEPS = 20


def loop(config: dict[str, Any]) -> None:
    """Trains with all state in checkpoints; kills a worker once if `kill` names a file that is not there."""
    import torch

    from aktis import train
    from aktis.train import Checkpoint
    from aktis.train.torch import get_device, prepare_model

    rank = train.get_context().get_world_rank()
    last = train.get_context().get_world_size() - 1
    device = get_device()
    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(800, 4)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"), map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    parallel = prepare_model(model)
    for epoch in range(first, EPOCHS):
        generator = torch.Generator().manual_seed(1000 * epoch + rank)
        for step in range(STEPS):
            images = torch.randn(16, 1, 12, 12, generator=generator).to(device)
            kinds = images.mean(dim=(1, 2, 3)).mul(20).long().clamp(0, 3)
            loss = torch.nn.functional.cross_entropy(parallel(images), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            marker = config["kill"]
            if (
                marker
                and rank == last
                and (epoch, step) == (KILLED_IN, STEPS // 2)
                and not os.path.exists(marker)
            ):
                with open(marker, "w") as file:
                    file.write(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, os.path.join(folder, "state.pt"))
            saved = Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"loss": loss.item(), "time": time.time()}, checkpoint=saved)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preload", action="store_true")
    parser.add_argument("--gpu", action="store_true", help="NCCL, with a worker on each GPU")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    import aktis
    from aktis.train import FailureConfig, RunConfig, ScalingConfig
    from aktis.train.torch import TorchTrainer

    aktis.init(
        num_cpus=None if given.gpu else 2,
        runtime_env={"preload": ["torch", "torch._dynamo"]} if given.preload else None,
    )
    workers = int(aktis.cluster_resources().get("GPU", 0)) if given.gpu else 2
    if workers == 0:
        print("not run: there is no GPU here\nhint: without --gpu it trains with Gloo")
        return 0

    def fit(kill: str | None) -> Any:
        trainer = TorchTrainer(
            loop,
            train_loop_config={"kill": kill},
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=given.gpu),
            run_config=RunConfig(
                storage_path=storage, verbose=0, failure_config=FailureConfig(max_failures=1)
            ),
        )
        return trainer.fit()

    with tempfile.TemporaryDirectory() as storage:
        expected = [row["loss"] for row in fit(None).metrics_history]
        seconds, same = [], True
        for number in range(given.rounds):
            marker = os.path.join(storage, f"killed-{number}")
            result = fit(marker)
            with open(marker) as file:
                seconds.append(result.metrics_history[KILLED_IN]["time"] - float(file.read()))
            same = (
                same and [row["loss"] for row in result.metrics_history] == expected and result.failures == 1
            )
    aktis.shutdown()
    title = "a training worker killed -9" + (", with preload" if given.preload else "")
    figures = [
        Figure(
            f"{title}: to the next report",
            "s",
            {"aktis": statistics.median(seconds)},
            (Demand(5.0),),
            less_is_better=True,
            remark=f"the worst of {given.rounds}: {max(seconds):.2f} s",
            samples={"aktis": seconds},
        ),
        Figure(f"{title}: same losses", "(1: yes)", {"aktis": float(same)}, (Demand(1.0),)),
    ]
    return finish(figures, given.json)


if __name__ == "__main__":
    sys.exit(main())
