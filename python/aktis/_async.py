"""The event loops of an actor with asynchronous methods.

The main thread runs the loop for all calls but those of concurrency groups. Where a loop would sleep until a
descriptor is ready, this one takes a turn of the worker: messages are taken in and calls begun on the loop's
own thread, so that a call costs no switch between threads. Descriptors that user code waits for are watched
by a thread of their own. Each concurrency group has a loop on a thread of its own.
"""

import asyncio
import contextvars
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import CoroutineType
from typing import Any

from aktis._engine import Completion, Context, native

call: contextvars.ContextVar[tuple[Context, Completion] | None] = contextvars.ContextVar(
    "aktis_call", default=None
)
"""The call that a coroutine belongs to."""
_main: "Loop | None" = None
_calling = False
"""Whether the main thread is in a method itself, and not in a coroutine that it gave."""
_groups: dict[int, asyncio.AbstractEventLoop] = {}
_lock = threading.Lock()


class _Watcher:
    """Wakes the loop when a descriptor that user code waits for is ready."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._armed = threading.Semaphore(0)
        threading.Thread(target=self._run, name="aktis-descriptors", daemon=True).start()
        self._busy = False

    def arm(self) -> None:
        """Watches until something is ready."""
        if not self._busy:
            self._busy = True
            self._armed.release()

    def _run(self) -> None:
        import select

        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while True:
            self._armed.acquire()
            poll.poll()
            self._busy = False
            native.wake_loop()


class _Selector(selectors.EpollSelector):
    """Takes a turn of the worker where others sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._watcher: _Watcher | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # The one descriptor that is always there is the loop's own, which nobody writes to.
        if len(self.get_map()) <= 1:
            native.loop_turn(timeout)
            return []
        ready = super().select(0)
        if ready or timeout == 0:
            native.loop_turn(0.0)
            return ready
        if self._watcher is None:
            self._watcher = _Watcher(self.fileno())
        self._watcher.arm()
        native.loop_turn(timeout)
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """The event loop on the main thread."""

    def __init__(self) -> None:
        super().__init__(_Selector())
        self._first_step: tuple[Callable[..., Any], tuple[Any, ...], contextvars.Context] | None = None

    def _write_to_self(self) -> None:
        native.wake_loop()

    def begin_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Creates a task, and goes the first step with it at once instead of in the loop's next round.

        Most calls are over after it: they never wait in the loop, and with thousands of them in flight there
        is nothing for the garbage collector to look through.
        """
        self.call_soon = self._catch_first_step  # type: ignore[method-assign, assignment]
        try:
            if self.get_task_factory() is None:
                task = asyncio.Task(coroutine, loop=self)
            else:
                task = self.create_task(coroutine)
        finally:
            self.__dict__.pop("call_soon", None)
        if self._first_step is not None:
            callback, args, context = self._first_step
            self._first_step = None
            context.run(callback, *args)
        return task

    def _catch_first_step(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        # What a task schedules while it is created is its first step; whatever else comes goes its usual way.
        del self.call_soon
        self._first_step = callback, args, context or contextvars.copy_context()


def run_first(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Runs a constructor that is a coroutine to its end, in a loop of its own: calls wait for it."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()
        asyncio._set_running_loop(outer)


def run_loop() -> None:
    """Runs the event loop on the main thread; does not return."""
    loop = main_loop()
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            # A call was cancelled while it ran: its task has got the exception already.
            pass
        except SystemExit as error:
            if type(error).__name__ != "ActorExit":
                raise


def main_loop() -> "Loop":
    """The loop of the main thread."""
    global _main
    if _main is None:
        _main = Loop()
    return _main


def is_interruptible() -> bool:
    """Whether a call that is cancelled is interrupted by an exception out of nowhere. A coroutine is not: its
    task is cancelled, which it sees where it waits."""
    return _main is None or _calling


def _group_loop(group: int) -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _groups.get(group)
        if loop is None:
            loop = _groups[group] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name=f"aktis-loop-{group}", daemon=True).start()
        return loop


def run_async(
    method: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    completion: Any,
    group: int,
) -> None:
    """Has the event loop of the call's group run a method; `completion` is told what it gave."""
    here = native.context()
    if group == 0:
        _begin(main_loop(), method, args, kwargs, completion, here)
    else:
        loop = _groups.get(group) or _group_loop(group)
        loop.call_soon_threadsafe(_begin, loop, method, args, kwargs, completion, here)


def is_in_call() -> bool:
    """Whether the running coroutine is that of a call, and not one that a call has started."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or getattr(task.get_coro(), "cr_code", None) is _tell.__code__


def _begin(
    loop: asyncio.AbstractEventLoop,
    method: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    completion: Any,
    here: Context,
) -> None:
    global _calling
    before = call.set((here, completion))
    try:
        _calling = loop is _main
        result = method(*args, **kwargs) if kwargs else method(*args)
        _calling = False
        if type(result) is not CoroutineType and not asyncio.iscoroutine(result):
            completion.returned(result)
            return
        told = _tell(result, completion)
        # The first call may come before the loop runs.
        if loop is _main and loop.is_running():
            task = _main.begin_task(told)
        else:
            task = loop.create_task(told)
    except BaseException as error:
        completion.raised(error)
        return
    finally:
        _calling = False
        call.reset(before)
    if not task.done():
        completion.started(task.cancel if loop is _main else lambda: loop.call_soon_threadsafe(task.cancel))


async def _tell(coroutine: Any, completion: Any) -> None:
    """Runs a call to its end and tells how it ended."""
    try:
        result = await coroutine
    except BaseException as error:
        completion.raised(error)
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            raise
    else:
        completion.returned(result)


def iterate(generator: Any) -> Iterator[Any]:
    """The items of an asynchronous generator, for a thread that waits for them while the loop runs it."""
    loop = main_loop()

    async def next_item() -> tuple[bool, Any]:
        try:
            return True, await generator.__anext__()
        except StopAsyncIteration:
            return False, None

    try:
        while True:
            found, item = asyncio.run_coroutine_threadsafe(next_item(), loop).result()
            if not found:
                return
            yield item
    finally:
        asyncio.run_coroutine_threadsafe(generator.aclose(), loop)
