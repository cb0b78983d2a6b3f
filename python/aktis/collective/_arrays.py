"""Arrays as memory: numpy arrays, torch tensors in main memory, and whatever has the buffer protocol."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["empty_like", "is_torch", "memory", "shape_of"]

_BY_FORMAT = {"f": "float32", "d": "float64", "e": "float16", "B": "uint8"}
_INTEGERS = {4: "int32", 8: "int64"}
_EMPTY = bytearray()


def is_torch(array: Any) -> bool:
    """Whether it is a tensor of torch, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


@contextmanager
def memory(array: Any, *, write: bool) -> Iterator[tuple[str, Any]]:
    """The array's type and its memory as bytes. An array that is not contiguous is copied, and back with
    `write`."""
    name, view, copy_back = _torch_memory(array) if is_torch(array) else _buffer_memory(array, write)
    yield name, view
    if write and copy_back is not None:
        copy_back()


def _torch_memory(tensor: Any) -> tuple[str, Any, Callable[[], object] | None]:
    import torch

    if tensor.device.type != "cpu":
        raise ValueError(
            f"the tensor is on {tensor.device}, and collectives work on main memory\n"
            "hint: use `tensor.cpu()`, or torch.distributed with NCCL for GPUs"
        )
    name = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.detach()
    whole = plain if plain.is_contiguous() else plain.contiguous()
    view = whole.reshape(-1).view(torch.uint8).numpy() if whole.numel() else _EMPTY
    return name, view, None if whole is plain else lambda: plain.copy_(whole)


def _buffer_memory(array: Any, write: bool) -> tuple[str, Any, Callable[[], object] | None]:
    try:
        view = memoryview(array)
    except (TypeError, ValueError):
        dtype = getattr(array, "dtype", None)
        of_type = f" of {dtype}" if dtype is not None else ""
        raise TypeError(
            f"{type(array).__name__}{of_type} is not an array that collectives can use\n"
            "hint: use a numpy array, a torch tensor, or an object with the buffer protocol"
        ) from None
    name = _type_name(view)
    if write and view.readonly:
        raise ValueError(
            "the array is read-only, and would be written to\n"
            "hint: use a copy of it, or give another array as `out=`"
        )
    if view.nbytes == 0:
        return name, _EMPTY, None
    if view.c_contiguous:
        return name, view.cast("B"), None
    # Only numpy has arrays that are not contiguous.
    import numpy

    whole = numpy.ascontiguousarray(array)
    return name, memoryview(whole).cast("B"), lambda: numpy.copyto(array, whole)


def _type_name(view: memoryview) -> str:
    kind = view.format.lstrip("@=<") if sys.byteorder == "little" else view.format
    if kind in ("i", "l", "q") and view.itemsize in _INTEGERS:
        return _INTEGERS[view.itemsize]
    if kind in _BY_FORMAT:
        return _BY_FORMAT[kind]
    raise TypeError(
        f"arrays with elements of format {view.format!r} cannot be used\n"
        "hint: use float32, float64, float16, int32, int64 or uint8 (and bfloat16 with torch)"
    )


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape of an array."""
    if is_torch(array):
        return tuple(array.shape)
    return tuple(memoryview(array).shape or ())


def empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    """A new array of the same kind and type, with another shape."""
    if is_torch(array):
        return array.new_empty(shape)
    import numpy

    return numpy.empty(shape, dtype=numpy.asarray(array).dtype)
