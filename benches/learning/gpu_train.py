"""TorchTrainer on GPUs: NCCL, samples per second beside a plain torch loop, and the same weights everywhere.

usage: python benches/learning/gpu_train.py [--workers N] [--steps N] [--rehearse-on-cpu]

It needs a machine with at least one GPU and a torch with CUDA. Where there is none it says so and ends with
status 0: it is a program for machines with GPUs, not a test of the test command. `--rehearse-on-cpu` runs the
same program with Gloo, to see that it works; its figures say nothing about GPUs.
"""

import argparse
import sys
import tempfile
import time
from typing import Any

BATCH = 512
WIDTH = 2048
WARM_UP_STEPS = 200
#: What TorchTrainer must reach of the plain loop's samples per second and worker.
RATE_SHARE_MIN = 0.95
#: The loss of rank 0 may differ by this from the plain loop's, which has the same data with one worker.
LOSS_DIFFERENCE_MAX = 1e-3


def network() -> Any:
    """A dense net whose weights are the same in every process."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        *(torch.nn.Linear(64, WIDTH), torch.nn.ReLU()),
        *(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()),
        torch.nn.Linear(WIDTH, 1),
    )


def fit(model: Any, device: Any, rank: int, steps: int) -> dict[str, float]:
    """Trains on data made on the spot: the first and last loss, and samples per second after a warm-up."""
    import torch

    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(BATCH, 64, generator=generator).to(device)
    targets = inputs.sum(1, keepdim=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    began = 0.0
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            wait_for(device)
            began = time.perf_counter()
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    wait_for(device)
    rate = steps * BATCH / (time.perf_counter() - began)
    return {"first_loss": losses[0].item(), "last_loss": losses[-1].item(), "rate": rate}


def wait_for(device: Any) -> None:
    """Returns when the device has done what it was given."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def loop(config: dict[str, Any]) -> None:
    """Runs in each worker; worker 0's report becomes the result."""
    import torch
    import torch.distributed as distributed

    from aktis import train
    from aktis.train.torch import get_device, prepare_model

    device = get_device()
    rank = train.get_context().get_world_rank()
    model = prepare_model(network())
    found = fit(model, device, rank, config["steps"])
    mine = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    first = mine.clone()
    distributed.broadcast(first, 0)
    difference = (mine - first).abs().max()
    distributed.all_reduce(difference, op=distributed.ReduceOp.MAX)
    ones = torch.ones(1, device=device)
    distributed.all_reduce(ones)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    where = {"backend": distributed.get_backend(), "device": str(device), "name": name}
    train.report({**where, **found, "weight_difference": difference.item(), "sum_of_ones": ones.item()})


def with_trainer(workers: int, steps: int, use_gpu: bool) -> dict[str, Any]:
    """What worker 0 reported."""
    import aktis
    from aktis.train import RunConfig, ScalingConfig
    from aktis.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as storage, aktis.init(num_cpus=workers):
        trainer = TorchTrainer(
            loop,
            train_loop_config={"steps": steps},
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=use_gpu),
            run_config=RunConfig(storage_path=storage, verbose=0),
        )
        return dict(trainer.fit().metrics)


def complaints(found: dict[str, Any], plain: dict[str, float], workers: int, use_gpu: bool) -> list[str]:
    """What is not as it has to be, each in words."""
    wrong = []
    if use_gpu and found["backend"] != "nccl":
        wrong.append(f"the backend is {found['backend']}, not nccl")
    if use_gpu and not found["device"].startswith("cuda"):
        wrong.append(f"the device is {found['device']}, not a GPU")
    if not found["last_loss"] < 0.5 * found["first_loss"]:
        wrong.append("the loss has not fallen to a half")
    if found["weight_difference"] != 0:
        wrong.append(f"weights differ between ranks by up to {found['weight_difference']:g}")
    if found["sum_of_ones"] != workers:
        wrong.append(f"a sum over {workers} workers gave {found['sum_of_ones']}")
    if workers == 1 and abs(found["last_loss"] - plain["last_loss"]) > LOSS_DIFFERENCE_MAX:
        wrong.append("the last loss is not that of the plain loop")
    if use_gpu and found["rate"] < RATE_SHARE_MIN * plain["rate"]:
        wrong.append(f"a worker has less than {RATE_SHARE_MIN:.0%} of the plain loop's samples per second")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, help="as many as there are GPUs without it")
    parser.add_argument("--steps", type=int, default=3000, help="training steps that are timed")
    parser.add_argument("--rehearse-on-cpu", action="store_true", help="run with Gloo, without a GPU")
    given = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("not run: torch is not installed\nhint: pip install torch")
        return 0
    use_gpu = not given.rehearse_on_cpu
    if use_gpu and not torch.cuda.is_available():
        print("not run: torch sees no GPU here\nhint: --rehearse-on-cpu runs the same program without one")
        return 0
    workers = given.workers or (torch.cuda.device_count() if use_gpu else 1)
    device = torch.device("cuda:0" if use_gpu else "cpu")
    # The loop on both sides of the trainer: a machine that warms up or slows down shows in their difference.
    before = fit(network().to(device), device, 0, given.steps)
    found = with_trainer(workers, given.steps, use_gpu)
    plain = fit(network().to(device), device, 0, given.steps)
    for name in ("backend", "device", "name", "first_loss", "last_loss", "weight_difference", "sum_of_ones"):
        print(f"{name:20} {found[name]}")
    print(f"{'samples/s, worker':20} {found['rate']:,.0f} ({workers} workers)")
    print(f"{'samples/s, plain':20} {before['rate']:,.0f} before, {plain['rate']:,.0f} after")
    plain["rate"] = (before["rate"] + plain["rate"]) / 2
    print(f"{'worker / plain':20} {found['rate'] / plain['rate']:.3f}")
    wrong = complaints(found, plain, workers, use_gpu)
    print("\n".join(wrong) or f"all is well with {workers} workers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
