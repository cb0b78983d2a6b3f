"""Put of 800 MB arrays, by turns with a copy of the same array into warm shared memory."""

import mmap
import os
import statistics
import time
from typing import Any

from clock import Clock
from figure import Demand, Shape
from row import Row, both

COUNT = 100_000_000
QUICK_COUNT = 25_000_000
STORE_BYTES = 4_000_000_000
WARM_UP = 3
TURNS = 8


def put_large(api: Any, clock: Clock) -> dict[str, float]:
    import numpy

    array = numpy.arange(QUICK_COUNT if clock.quick else COUNT, dtype=numpy.int64)
    copy = warm_copy(array)

    def put() -> None:
        api.put(array)

    # A freed object's memory may come back late; both peers get their best when it does.
    for _ in range(WARM_UP):
        put()
        copy()
    puts, copies = [], []
    for _ in range(TURNS):
        puts.append(seconds(put))
        copies.append(seconds(copy))
    put_time, copy_time = statistics.median(puts), statistics.median(copies)
    value = api.get(api.put(array))
    assert value.shape == array.shape and value[-1] == array[-1]
    return {
        "put-large": array.nbytes / put_time / 1e9,
        "put-large-of-copy": copy_time / put_time,
        "warm-copy": array.nbytes / copy_time / 1e9,
    }


def warm_copy(array: Any) -> Any:
    """A function that copies the array into shared memory."""
    import numpy

    handle = os.memfd_create("warm-copy")
    os.ftruncate(handle, array.nbytes)
    memory = mmap.mmap(handle, array.nbytes)
    os.close(handle)
    target = numpy.frombuffer(memory, dtype=array.dtype)
    return lambda: numpy.copyto(target, array)


def seconds(operation: Any) -> float:
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


ROWS = [
    Row(
        "put-large",
        (
            Shape("put-large", "put of 800 MB arrays", "GB/s"),
            Shape("warm-copy", "the same array copied into warm memory", "GB/s"),
            Shape("put-large-of-copy", "put of 800 MB arrays, by warm copy", "x", (Demand("", 0.9),)),
        ),
        both(put_large),
        options={"object_store_memory": STORE_BYTES},
    )
]
