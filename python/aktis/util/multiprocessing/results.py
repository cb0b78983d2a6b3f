"""What the asynchronous functions of a pool return: results that are there later, whole or one by one."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import TimeoutError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aktis.util.multiprocessing.pool import Pool

Callback = Callable[[Any], object]


class Failed:
    """In place of a value: the exception that there is instead."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Job:
    """One call of a function of the pool. The pool delivers its chunks, in any order, each exactly once."""

    def __init__(self, pool: "Pool") -> None:
        # A result keeps its pool alive: `Pool().map_async(..).get()` needs the workers until it has its
        # values.
        self._pool: Pool | None = pool

    def deliver(self, index: int, values: "list[Any] | Failed") -> None:
        """A chunk is done: its values, which may be `Failed` one by one, or why there are none."""
        raise NotImplementedError

    def chunks_are(self, count: int) -> None:
        """There will be `count` chunks and no more."""
        raise NotImplementedError


class AsyncResult(Job):
    """The result of `apply_async`, `map_async` and `starmap_async`."""

    def __init__(
        self,
        pool: "Pool",
        callback: Callback | None = None,
        error_callback: Callback | None = None,
        single: bool = False,
    ) -> None:
        super().__init__(pool)
        self._callback = callback
        self._error_callback = error_callback
        self._single = single
        self._chunks: dict[int, list[Any]] = {}
        self._delivered = 0
        self._expected: int | None = None
        self._error: BaseException | None = None
        self._value: Any = None
        self._done = threading.Event()
        self._lock = threading.Lock()

    def get(self, timeout: float | None = None) -> Any:
        """The result, waiting for it. Raises the function's exception, or `multiprocessing.TimeoutError`."""
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        """Waits until there is a result, at most `timeout` seconds."""
        self._done.wait(timeout)

    def ready(self) -> bool:
        """Whether there is a result, or an exception."""
        return self._done.is_set()

    def successful(self) -> bool:
        """Whether there was no exception. Raises ValueError if there is no result yet."""
        if not self.ready():
            raise ValueError(f"{self!r} is not ready")
        return self._error is None

    def deliver(self, index: int, values: list[Any] | Failed) -> None:
        with self._lock:
            self._delivered += 1
            failed = values if isinstance(values, Failed) else next(filter(_is_failed, values), None)
            if failed is not None:
                # As in the standard library, the first failure to arrive is the one that is raised.
                self._error = self._error or failed.error
            elif isinstance(values, list):
                self._chunks[index] = values
        self._finish_if_complete()

    def chunks_are(self, count: int) -> None:
        with self._lock:
            self._expected = count
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        with self._lock:
            if self._done.is_set() or self._delivered != self._expected:
                return
            if self._error is None:
                values = [value for index in sorted(self._chunks) for value in self._chunks[index]]
                self._value = values[0] if self._single else values
            self._chunks = {}
        # The callback comes before the event, so that whoever waited finds it done.
        try:
            if self._error is None and self._callback is not None:
                self._callback(self._value)
            elif self._error is not None and self._error_callback is not None:
                self._error_callback(self._error)
        finally:
            self._pool = None
            self._done.set()


class ResultIterator(Job):
    """The result of `imap` and `imap_unordered`: an iterator that waits for the next value."""

    def __init__(self, pool: "Pool", ordered: bool) -> None:
        super().__init__(pool)
        self._ordered = ordered
        self._ready: deque[Any] = deque()
        self._early: dict[int, list[Any]] = {}
        """Chunks that came before their turn."""
        self._delivered = 0
        self._expected: int | None = None
        self._changed = threading.Condition()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next value. Raises the function's exception, StopIteration at the end, and
        `multiprocessing.TimeoutError` if there is none after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._ready:
                if self._delivered == self._expected:
                    self._pool = None
                    raise StopIteration
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise TimeoutError
                self._changed.wait(remaining)
            value = self._ready.popleft()
        if isinstance(value, Failed):
            raise value.error
        return value

    def deliver(self, index: int, values: list[Any] | Failed) -> None:
        chunk = [values] if isinstance(values, Failed) else values
        with self._changed:
            if not self._ordered:
                self._ready.extend(chunk)
                self._delivered += 1
            else:
                self._early[index] = chunk
                while self._delivered in self._early:
                    self._ready.extend(self._early.pop(self._delivered))
                    self._delivered += 1
            self._changed.notify_all()

    def chunks_are(self, count: int) -> None:
        with self._changed:
            self._expected = count
            self._changed.notify_all()


def _is_failed(value: Any) -> bool:
    return isinstance(value, Failed)
