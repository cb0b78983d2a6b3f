"""What a generator task gives its caller: references, one for each item, while the task still runs."""

import os
from collections.abc import Callable
from typing import Any, Generic, NoReturn, Self, TypeVar

from aktis._engine import ObjectRef, Stream, native

T = TypeVar("T")


class ObjectRefGenerator(Generic[T]):
    """An iterator of references, also for `async for`. An exception of the task is one more reference."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._completed: ObjectRef[None] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ObjectRef[T]:
        found = self._stream.next(None)
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ObjectRef[T]:
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            arrival = loop.create_future()
            found = self._stream.poll(_waker(loop, arrival))
            if found is None:
                raise StopAsyncIteration
            if isinstance(found, ObjectRef):
                return found
            await arrival

    def peek(self, callback: Callable[[], None]) -> bool:
        """Whether there is an item or the end; if not, `callback` is called when it is worth asking again.
        Nothing is taken: a task that back-pressure holds stays where it is."""
        return self._stream.watch(callback)

    def _next_sync(self, timeout_s: float | None = None) -> ObjectRef[T]:
        """The next item; GetTimeoutError if it is not there in time."""
        found = self._stream.next(timeout_s)
        if found is None:
            raise StopIteration
        return found

    def next_ready(self) -> bool:
        """Whether the next item is there already; False once all were taken."""
        return not self.is_finished() and self.peek(_ignore)

    def is_finished(self) -> bool:
        """Whether all items were taken and the task has ended."""
        return self._stream.is_finished()

    def completed(self) -> ObjectRef[None]:
        """A reference that is resolved once the task has ended, and fails if it did."""
        if self._completed is None:
            self._completed = self._stream.completed()
        return self._completed

    @property
    def _generator_ref(self) -> ObjectRef[None]:
        return self.completed()

    def __del__(self) -> None:
        # Ray lets a task whose generator was dropped run to its end; Aktis ends it at its next item.
        if os.environ.get("AKTIS_COMPAT") == "1":
            drain(self._stream)

    def task_id(self) -> Any:
        """The id of the task."""
        from aktis._ids import TaskID

        return TaskID(self._stream.task_id())

    def cancel(self, force: bool, recursive: bool) -> None:
        """Cancels the task."""
        native.cancel(self._stream, force, recursive)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a generator of references belongs to the process that called the task, and cannot be sent\n"
            "hint: send the references that it gives, or list(generator)"
        )

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._stream.task_id().hex()})"


class DynamicObjectRefGenerator(Generic[T]):
    """The value of a task with `num_returns="dynamic"`: the references to all its items."""

    def __init__(self, references: list[ObjectRef[T]]) -> None:
        self._references = references
        self._position = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ObjectRef[T]:
        if self._position == len(self._references):
            raise StopIteration
        self._position += 1
        return self._references[self._position - 1]

    def __len__(self) -> int:
        return len(self._references) - self._position

    def __repr__(self) -> str:
        return f"DynamicObjectRefGenerator({len(self._references)} items)"


def dynamic(items: Any) -> DynamicObjectRefGenerator[Any]:
    """Makes an object of each item. For the worker."""
    return DynamicObjectRefGenerator([native.put(item) for item in items])


def drain(stream: Stream) -> None:
    """Takes items that nobody wants until the task is done, so that back-pressure does not hold it."""
    try:
        while isinstance(stream.poll(lambda: drain(stream)), ObjectRef):
            pass
    except Exception:
        pass  # the session is over


def _waker(loop: Any, arrival: Any) -> Callable[[], None]:
    from aktis import _futures

    return lambda: _futures.wake(loop, arrival)


def _ignore() -> None:
    pass
