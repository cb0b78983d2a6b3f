"""Turns a model and a data loader for one process into those of a worker."""

from collections.abc import Iterator, Mapping
from typing import Any

from aktis.train import session

__all__ = [
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]


def get_device() -> Any:
    """The device of this worker: its first GPU, or the CPU."""
    return get_devices()[0]


def get_devices() -> list[Any]:
    """The devices of this worker: its GPUs, or the CPU."""
    import torch

    import aktis

    count = len(aktis.get_gpu_ids()) if aktis.is_initialized() else 0
    if count and torch.cuda.is_available():
        # CUDA_VISIBLE_DEVICES holds the worker's own GPUs only.
        return [torch.device("cuda", index) for index in range(min(count, torch.cuda.device_count()))]
    return [torch.device("cpu")]


def prepare_model(
    model: Any,
    move_to_device: Any = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Moves a model to the worker's device, and wraps it so that the workers' gradients are averaged.

    `parallel_strategy` is "ddp" (`DistributedDataParallel`), "fsdp" (`FullyShardedDataParallel`) or None. A
    run with one worker wraps nothing.
    """
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(
            f'`parallel_strategy` must be "ddp", "fsdp" or None, got {parallel_strategy!r}'
            "\nhint: None trains each worker's model by itself"
        )
    options = dict(parallel_strategy_kwargs or {})
    device = get_device() if move_to_device is True else move_to_device
    if device is not False and device is not None:
        model = model.to(device)
    if parallel_strategy is None or session.get_context().get_world_size() == 1:
        return model
    if parallel_strategy == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, **options)
    from torch.nn.parallel import DistributedDataParallel

    if getattr(device, "type", "cpu") == "cuda":
        options = {"device_ids": [device], "output_device": device, **options}
    return DistributedDataParallel(model, **options)


def prepare_optimizer(optimizer: Any) -> Any:
    """The optimizer itself; there for programs that call it."""
    return optimizer


def prepare_data_loader(
    data_loader: Any, add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True
) -> Any:
    """Gives a `DataLoader` whose batches are this worker's, on its device.

    Each worker gets another part of the data, as `DistributedSampler` has it. If the loader shuffles, call
    `loader.sampler.set_epoch(epoch)` before each epoch. `batch_size` is that of one worker.
    """
    import torch
    from torch.utils.data import (
        DataLoader,
        DistributedSampler,
        IterableDataset,
        RandomSampler,
        SequentialSampler,
    )

    if not isinstance(data_loader, DataLoader):
        raise TypeError(
            f"`data_loader` must be a torch DataLoader, got {type(data_loader).__name__}"
            "\nhint: wrap a dataset by torch.utils.data.DataLoader"
        )
    context = session.get_context()
    if (
        context.get_world_size() > 1
        and add_dist_sampler
        and not isinstance(data_loader.dataset, IterableDataset)
    ):
        sampler = data_loader.sampler
        if not isinstance(sampler, RandomSampler | SequentialSampler | DistributedSampler):
            raise ValueError(
                f"the loader has a sampler of its own, {type(sampler).__name__}, which knows nothing of "
                "the other workers\nhint: prepare_data_loader(loader, add_dist_sampler=False), and let the "
                "sampler take the rank from get_context()"
            )
        if data_loader.batch_size is None:
            raise ValueError("a loader without batches cannot be shared out\nhint: give it a `batch_size`")
        if not isinstance(sampler, DistributedSampler):
            sampler = DistributedSampler(
                data_loader.dataset,
                num_replicas=context.get_world_size(),
                rank=context.get_world_rank(),
                shuffle=isinstance(sampler, RandomSampler),
            )
            data_loader = with_sampler(data_loader, sampler)
    device = get_device() if move_to_device else torch.device("cpu")
    return data_loader if device.type == "cpu" else DeviceLoader(data_loader, device, auto_transfer)


def with_sampler(loader: Any, sampler: Any) -> Any:
    """The same loader with another sampler."""
    from torch.utils.data import DataLoader

    options = {
        "batch_size": loader.batch_size,
        "sampler": sampler,
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
        "generator": loader.generator,
        "persistent_workers": loader.persistent_workers,
    }
    if loader.num_workers > 0:
        options["prefetch_factor"] = loader.prefetch_factor
    return DataLoader(loader.dataset, **options)


class DeviceLoader:
    """Moves the batches of a loader to a device; with `ahead`, the next one while the present one is used."""

    def __init__(self, loader: Any, device: Any, ahead: bool) -> None:
        self._loader = loader
        self._device = device
        self._ahead = ahead

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        waiting: list[Any] = []
        for batch in self._loader:
            waiting.append(moved(batch, self._device))
            if not self._ahead or len(waiting) > 1:
                yield waiting.pop(0)
        yield from waiting


def moved(batch: Any, device: Any) -> Any:
    """The tensors of a batch on a device."""
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        values = [moved(value, device) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch


def enable_reproducibility(seed: int = 0) -> None:
    """Seeds Python, numpy and torch with `seed`, and lets torch choose deterministic algorithms only."""
    import random

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        import numpy
    except ModuleNotFoundError:
        return
    numpy.random.seed(seed)
