"""Checks TorchTrainer on GPUs: NCCL, a device for each worker, and a loss that falls.

usage: python benches/learning/gpu_train.py [--workers N]

It needs a machine with at least one GPU and a torch with CUDA. Where there is none it says so and ends with
status 0: it is a program for machines with GPUs, not a test of the test command.
"""

import argparse
import sys
import tempfile
from typing import Any

STEPS = 200


def loop(config: dict[str, Any]) -> None:
    """Fits a line; all workers report the backend, their device and the loss."""
    import torch
    import torch.distributed as distributed

    from aktis import train
    from aktis.train.torch import get_device, prepare_model

    torch.manual_seed(0)
    device = get_device()
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(train.get_context().get_world_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(64, 8, generator=generator).to(device)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    total = torch.ones(1, device=device)
    distributed.all_reduce(total)
    train.report(
        {
            "backend": distributed.get_backend(),
            "device": str(device),
            "name": torch.cuda.get_device_name(device),
            "first_loss": losses[0],
            "last_loss": losses[-1],
            "sum_of_ones": total.item(),
        }
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, help="as many as there are GPUs without it")
    given = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("not run: torch is not installed")
        return 0
    if not torch.cuda.is_available():
        print("not run: torch sees no GPU here")
        return 0
    workers = given.workers or torch.cuda.device_count()

    import aktis
    from aktis.train import RunConfig, ScalingConfig
    from aktis.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as storage, aktis.init(num_cpus=workers):
        trainer = TorchTrainer(
            loop,
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=True),
            run_config=RunConfig(storage_path=storage, verbose=0),
        )
        found = trainer.fit().metrics
    for name in ("backend", "device", "name", "first_loss", "last_loss", "sum_of_ones"):
        print(f"{name:12} {found[name]}")
    wrong = []
    if found["backend"] != "nccl":
        wrong.append(f"the backend is {found['backend']}, not nccl")
    if not found["device"].startswith("cuda"):
        wrong.append(f"the device is {found['device']}, not a GPU")
    if not found["last_loss"] < 0.1 * found["first_loss"]:
        wrong.append("the loss has not fallen to a tenth")
    if found["sum_of_ones"] != workers:
        wrong.append(f"a sum over {workers} workers gave {found['sum_of_ones']}")
    print("\n".join(wrong) or f"all is well with {workers} workers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
