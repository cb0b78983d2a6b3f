"""The training that `train_torch.py` measures: a small convolutional net on pictures made on the spot.

`torchrun` starts this file as a program; Aktis calls `train` in its workers. Both run the same code.
"""

import json
import os
import sys
import time
from typing import Any

BATCH = 32
PICTURES = 2048


def train(epochs: int) -> dict[str, Any]:
    """Trains in the process group that there is; gives its losses, and pictures per second of all workers."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(PICTURES, 1, 28, 28, generator=generator)
    kinds = torch.randint(0, 10, (PICTURES,), generator=generator)
    images[torch.arange(PICTURES), 0, :, 2 * kinds] += 1.0
    data = TensorDataset(images, kinds)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )
    parallel = DistributedDataParallel(model)
    sampler: Any = DistributedSampler(data, shuffle=True)
    loader: Any = DataLoader(data, batch_size=BATCH, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses: list[float] = []

    def epoch(number: int) -> None:
        sampler.set_epoch(number)
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(parallel(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    epoch(0)  # warms up
    dist.barrier()
    began = time.perf_counter()
    for number in range(1, epochs + 1):
        epoch(number)
    dist.barrier()
    seconds = time.perf_counter() - began
    return {"losses": losses, "rate": epochs * PICTURES / seconds, "threads": torch.get_num_threads()}


def main() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    found = train(int(sys.argv[1]))
    if os.environ["RANK"] == "0":
        print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
