"""Data that the workers of a run share out: lists, arrays, tensors, or a dictionary of these."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["DatasetShard"]


def length_of(data: Any) -> int:
    """How many rows there are. Raises TypeError or ValueError for what cannot be shared out."""
    if isinstance(data, Mapping):
        lengths = {str(name): length_of(column) for name, column in data.items()}
        if not lengths or len(set(lengths.values())) > 1:
            raise ValueError(
                f"the columns of a dataset must have the same length, got {lengths}"
                "\nhint: cut the columns to the same number of rows"
            )
        return next(iter(lengths.values()))
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise TypeError(
            f"a dataset must be a sequence, an array or a dictionary of these, got {type(data).__name__}\n"
            "hint: list(...) makes one of an iterator"
        )
    return len(data)


def cut(data: Any, begin: int, end: int) -> Any:
    """The rows from `begin` to `end`; of arrays and tensors a view."""
    if isinstance(data, Mapping):
        return {name: cut(column, begin, end) for name, column in data.items()}
    try:
        return data[begin:end]
    except (TypeError, KeyError):
        return [data[index] for index in range(begin, end)]


class DatasetShard:
    """The part of a dataset that one worker has.

    The parts are contiguous and have the same length, so that the workers make the same number of steps: up
    to `world_size - 1` rows at the end belong to no part. A shard is a sequence, and can be given to a
    `DataLoader` of torch.

        shard = aktis.train.get_dataset_shard("train")
        for batch in shard.iter_torch_batches(batch_size=32):
            ...
    """

    def __init__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        self._length = length_of(data) // world_size
        self._whole = data
        self._begin = rank * self._length

    @property
    def data(self) -> Any:
        """The rows as what the dataset is: a list, an array, or a dictionary of these."""
        return cut(self._whole, self._begin, self._begin + self._length)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            begin, end, step = index.indices(self._length)
            if step == 1:
                return cut(self._whole, self._begin + begin, self._begin + end)
            return [self[number] for number in range(begin, end, step)]
        number = index + self._length if index < 0 else index
        if not 0 <= number < self._length:
            raise IndexError(f"row {index} of {self._length}")
        if isinstance(self._whole, Mapping):
            return {name: column[self._begin + number] for name, column in self._whole.items()}
        return self._whole[self._begin + number]

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(self._length))

    iter_rows = __iter__

    def iter_batches(self, *, batch_size: int = 256, drop_last: bool = False) -> Iterator[Any]:
        """The rows in batches, in order."""
        if batch_size < 1:
            raise ValueError(
                f"`batch_size` must be at least 1, got {batch_size}"
                "\nhint: give the rows of a batch, e.g. batch_size=32"
            )
        for begin in range(0, self._length, batch_size):
            if drop_last and begin + batch_size > self._length:
                return
            yield self[begin : begin + batch_size]

    def iter_torch_batches(
        self, *, batch_size: int = 256, drop_last: bool = False, device: Any = None, dtypes: Any = None
    ) -> Iterator[Any]:
        """The rows in batches, as tensors on the worker's device."""
        from aktis.train.torch import get_device

        place = get_device() if device is None else device
        for batch in self.iter_batches(batch_size=batch_size, drop_last=drop_last):
            yield as_tensors(batch, place, dtypes)

    def __repr__(self) -> str:
        return f"DatasetShard({self._length} rows)"


def as_tensors(batch: Any, device: Any, dtype: Any) -> Any:
    """A batch as tensors; `dtype` may be a dictionary by column."""
    import torch

    if isinstance(batch, Mapping):
        kinds = dtype if isinstance(dtype, Mapping) else dict.fromkeys(batch, dtype)
        return {name: as_tensors(column, device, kinds.get(name)) for name, column in batch.items()}
    if isinstance(batch, list) and batch and isinstance(batch[0], tuple):
        return tuple(as_tensors(list(column), device, dtype) for column in zip(*batch))
    # Arrays from the object store are read-only, and torch warns of those: a batch is small, and copied.
    return (
        torch.tensor(batch, device=device, dtype=dtype) if not is_tensor(batch) else batch.to(device, dtype)
    )


def is_tensor(value: Any) -> bool:
    """Whether the value is a tensor of torch."""
    import torch

    return isinstance(value, torch.Tensor)
