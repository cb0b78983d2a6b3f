"""How arrays, tables and tensors are pickled, so that their memory lies beside the pickle and is not copied.

numpy and pyarrow do most of it themselves. What they do not is here: arrays with gaps and of times, tables
that show a part of their memory, and torch's tensors. None of these packages is imported before the user has.

What is read from the store is read-only, as others see the same memory. Tensors cannot be read-only: theirs
is a private view, which reads the store's memory and copies only the pages that are written to.
"""

import os
import sys
from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

BYTES_MIN = 1024
# A table is written anew if its memory holds more than so many times what it shows.
TABLE_WASTE = 2
TABLE_WASTE_BYTES = 64 << 10


def reduce(module: str, value: Any) -> Any:
    """How to pickle a value of a class in this module, if that is to be done here."""
    reducer = REDUCERS[module].get(type(value).__name__)
    return reducer(value) if reducer is not None else NotImplemented


# --- numpy ------------------------------------------------------------------------------------


def _reduce_ndarray(array: Any) -> Any:
    if array.dtype.hasobject:
        return NotImplemented
    if array.nbytes < BYTES_MIN:
        return _reduce_small(array)
    if array.dtype.kind in "mM":
        # Python's buffers know no times: they are sent as the numbers that they are.
        return _as_times, (array.view("i8"), array.dtype)
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    if array.transpose(order).flags.c_contiguous:
        return NotImplemented
    # Without the gaps; the axes stay in their order in memory.
    return array.copy(order="K").__reduce_ex__(5)


def _reduce_small(array: Any) -> Any:
    """A small array is copied, and whoever gets it may write to it; not so with Ray."""
    if os.environ.get("AKTIS_COMPAT") != "1" or array.dtype.kind in "mM" or not array.flags.c_contiguous:
        return NotImplemented
    shown = array.view()
    shown.flags.writeable = False
    return shown.__reduce_ex__(5)


def _as_times(numbers: Any, dtype: Any) -> Any:
    return numbers.view(dtype)


# --- pyarrow ----------------------------------------------------------------------------------


def _reduce_table(table: Any) -> Any:
    """A table that shows little of its memory takes only that along."""
    if table.get_total_buffer_size() <= TABLE_WASTE * table.nbytes + TABLE_WASTE_BYTES:
        return NotImplemented
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return _read_table, (sink.getvalue(), type(table).__name__ == "RecordBatch")


def _read_table(data: Any, is_batch: bool) -> Any:
    import pyarrow

    reader = pyarrow.ipc.open_stream(data)
    return reader.read_next_batch() if is_batch else reader.read_all()


# --- torch ------------------------------------------------------------------------------------


def _reduce_tensor(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    plain = (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor._backward_hooks
        and not tensor.__dict__
    )
    if not plain:
        return NotImplemented
    dense = tensor.detach().resolve_conj().resolve_neg()
    # The order of the axes in memory is kept, as far as there are no gaps.
    order = sorted(range(dense.dim()), key=lambda axis: -dense.stride(axis))
    packed = dense.permute(order).contiguous()
    try:
        memory = packed.reshape(-1).view(torch.uint8).numpy() if packed.numel() else b""
    except RuntimeError:  # There is no numpy, or no such view.
        return NotImplemented
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(packed.shape)
    return _tensor, (PickleBuffer(memory), dtype, shape, order, tensor.requires_grad)


def _tensor(memory: Any, dtype: str, shape: tuple[int, ...], order: list[int], requires_grad: bool) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if not memory:
        packed = torch.empty(shape, dtype=kind)
    else:
        private = getattr(memory, "private", None)
        owned = private() if private is not None else bytearray(memory)
        packed = torch.frombuffer(owned, dtype=kind).reshape(shape)
    tensor = packed.permute(sorted(range(len(order)), key=order.__getitem__))
    return tensor.requires_grad_() if requires_grad else tensor


REDUCERS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "numpy": {"ndarray": _reduce_ndarray},
    "pyarrow.lib": {"RecordBatch": _reduce_table, "Table": _reduce_table},
    "torch": {"Tensor": _reduce_tensor},
}
