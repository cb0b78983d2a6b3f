"""Trains a small convolutional net in two workers: data parallel, with checkpoints, through a kill -9.

The pictures are made on the spot: bars that stand, lie or slant, with noise. In the middle of the training
one worker is killed; the run goes on from its last checkpoint, and ends as if nothing had happened.

Run it with `python examples/python/train_torch.py`. It needs torch.
"""

import os
import signal
import tempfile
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import aktis
from aktis import train
from aktis.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from aktis.train.torch import TorchTrainer, prepare_data_loader, prepare_model

EPOCHS = 4
PICTURES = 2048
SIZE = 16


def pictures(count: int, seed: int) -> TensorDataset:
    """Bars of three kinds at random places, and which kind each is."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, 3, (count,), generator=generator)
    images = 0.5 * torch.randn(count, 1, SIZE, SIZE, generator=generator)
    places = torch.randint(2, SIZE - 2, (count,), generator=generator)
    steps = torch.arange(SIZE)
    for image, kind, place in zip(images, kinds.tolist(), places.tolist()):
        rows = place if kind == 1 else steps
        columns = place if kind == 0 else (steps + place) % SIZE
        image[0, rows, columns] += 1.5
    return TensorDataset(images, kinds)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


def train_loop(config: dict[str, Any]) -> None:
    """Runs in each worker."""
    rank = train.get_context().get_world_rank()
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["rate"])
    first = 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    parallel = prepare_model(model)
    loader = prepare_data_loader(DataLoader(pictures(PICTURES, seed=1), batch_size=32, shuffle=True))
    test_images, test_kinds = pictures(256, seed=2).tensors
    for epoch in range(first, EPOCHS):
        if rank == 1 and epoch == 2 and first == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        loader.sampler.set_epoch(epoch)
        for images, kinds in loader:
            loss = nn.functional.cross_entropy(parallel(images), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(test_images).argmax(dim=1) == test_kinds).float().mean().item()
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, os.path.join(folder, "state.pt"))
            saved = Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"epoch": epoch, "accuracy": accuracy}, checkpoint=saved)


def main() -> None:
    # Workers are forked with torch: so they start, and start again, in a moment.
    preload = {"preload": ["torch", "torch._dynamo"]}
    with aktis.init(num_cpus=2, runtime_env=preload), tempfile.TemporaryDirectory() as storage:
        trainer = TorchTrainer(
            train_loop,
            train_loop_config={"rate": 0.003},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name="bars",
                storage_path=storage,
                verbose=0,
                failure_config=FailureConfig(max_failures=1),
                checkpoint_config=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="accuracy"),
                callbacks=[
                    lambda metrics: print(f"epoch {metrics['epoch']}: {metrics['accuracy']:.0%} right")
                ],
            ),
        )
        result = trainer.fit()
        assert result.metrics is not None
        print(
            f"killed {result.failures} time, and done: {result.metrics['accuracy']:.0%} of new pictures right"
        )


if __name__ == "__main__":
    main()
