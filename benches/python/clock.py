"""Measuring inside a row: rates and times, after a warm-up, as the median of several samples."""

import statistics
import time
from collections.abc import Callable, Sequence

SAMPLES = 5


class Clock:
    """How long a row may measure. A row passes operations; each checks what it gets."""

    def __init__(self, seconds: float, quick: bool) -> None:
        self.seconds = seconds
        self.quick = quick

    def rate(self, operation: Callable[[], object], each: int = 1, share: float = 1.0) -> float:
        """Operations per second, where a call of `operation` makes up `each` of them. `share` is the part of
        the row's time that is for this figure."""
        seconds = self.seconds * share
        self.repeat(operation, seconds / 4)
        samples = []
        for _ in range(SAMPLES):
            count, elapsed = self.repeat(operation, seconds / SAMPLES)
            samples.append(count * each / elapsed)
        return statistics.median(samples)

    def repeat(self, operation: Callable[[], object], seconds: float) -> tuple[int, float]:
        """Calls until the time is over, at least once; how often, and how long that took."""
        count, batch = 0, 1
        begin = now = time.perf_counter()
        while True:
            for _ in range(batch):
                operation()
            count += batch
            before, now = now, time.perf_counter()
            if now - begin >= seconds:
                return count, now - begin
            # Looking at the clock must not be what is measured.
            if now - before < seconds / 50:
                batch = min(batch * 2, 1 << 16)

    def by_turns(self, operations: Sequence[Callable[[], object]], batch: int) -> list[float]:
        """The seconds that one call of each operation takes: medians of batches, taken by turns."""
        samples: list[list[float]] = [[] for _ in operations]
        for operation in operations:
            self.repeat(operation, self.seconds / 20)
        deadline = time.perf_counter() + self.seconds
        while time.perf_counter() < deadline or len(samples[0]) < 3:
            for operation, taken in zip(operations, samples):
                begin = time.perf_counter()
                for _ in range(batch):
                    operation()
                taken.append((time.perf_counter() - begin) / batch)
        return [statistics.median(taken) for taken in samples]


def milliseconds(operation: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    operation()
    return (time.perf_counter() - begin) * 1000
