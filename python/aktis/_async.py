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
import types
from asyncio.tasks import _enter_task, _leave_task, _register_task, _unregister_task
from collections.abc import Callable, Coroutine, Generator, Iterator
from sys import getrefcount
from types import CoroutineType
from typing import Any, ClassVar

from aktis._engine import Completion, native

call: contextvars.ContextVar[Completion | None] = contextvars.ContextVar("aktis_call", default=None)
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

    def _write_to_self(self) -> None:
        native.wake_loop()

    def set_task_factory(self, factory: Any) -> None:
        super().set_task_factory(factory)
        _Spare.give_up_next()


class _Spare:
    """A task that waits for a call whose first step has not ended it.

    The first step of each call goes without the event loop, in a context of its own, and with this task as
    the current one. With thousands of calls in flight, no task is made for most of them.
    """

    _next: "ClassVar[_Spare | None]" = None

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._call: tuple[Any, Any, contextvars.Context, Any] | None = None
        self._first_step: tuple[Callable[..., Any], tuple[Any, ...], contextvars.Context | None] | None = None
        loop.call_soon = self._catch_first_step  # type: ignore[method-assign, assignment]
        try:
            self.task = asyncio.Task(self._go_on(), loop=loop)
        finally:
            loop.__dict__.pop("call_soon", None)
        # It is none of the loop's tasks before it has a call.
        self.task._log_destroy_pending = False  # type: ignore[attr-defined]
        _unregister_task(self.task)
        self.references = getrefcount(self.task)

    def _catch_first_step(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        # What a task schedules while it is created is its first step; whatever else comes goes its usual way.
        del self.loop.call_soon
        self._first_step = callback, args, context

    @classmethod
    def next(cls) -> "_Spare | None":
        """For the next call; none if it has to take the usual way."""
        loop = main_loop()
        # The first call may come before the loop runs. Whoever makes tasks in their own way makes those of
        # calls, too.
        if cls._next is None and loop.is_running() and loop.get_task_factory() is None:
            cls._next = cls(loop)
        return cls._next

    @classmethod
    def give_up_next(cls) -> None:
        """No call takes the task that is there."""
        spare, cls._next = cls._next, None
        if spare is not None:
            coroutine = spare.task.get_coro()
            assert coroutine is not None
            coroutine.close()

    def begin(
        self, coroutine: Any, waits_for: Any, context: contextvars.Context, completion: Completion
    ) -> None:
        """The task is that of a call, which waits for something after its first step."""
        assert self._first_step is not None and self is _Spare._next
        _Spare._next = None
        self._call = coroutine, waits_for, context, completion
        self.task._log_destroy_pending = True  # type: ignore[attr-defined]
        _register_task(self.task)
        callback, args, around = self._first_step
        (around or contextvars.copy_context()).run(callback, *args)
        if not self.task.done():
            completion.started(self.task.cancel)

    async def _go_on(self) -> None:
        assert self._call is not None
        coroutine, waits_for, context, completion = self._call
        self._call = None
        await _tell(_rest(coroutine, waits_for, context), completion)


@types.coroutine
def _rest(coroutine: Any, waits_for: Any, context: contextvars.Context) -> Generator[Any, Any, Any]:
    """What is left of a coroutine that waits for something, in its context."""
    while True:
        try:
            value = yield waits_for
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as error:
            step, given = coroutine.throw, error
        else:
            step, given = coroutine.send, value
        try:
            waits_for = context.run(step, given)
        except StopIteration as end:
            return end.value


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
    completion: Completion,
    group: int,
) -> None:
    """Has the event loop of the call's group run a method; `completion` is told what it gave."""
    if group != 0:
        loop = _groups.get(group) or _group_loop(group)
        loop.call_soon_threadsafe(_begin, loop, method, args, kwargs, completion)
        return
    spare = _Spare._next or _Spare.next()
    if spare is None:
        _begin(main_loop(), method, args, kwargs, completion)
        return
    context, loop, task = contextvars.copy_context(), spare.loop, spare.task
    _enter_task(loop, task)
    try:
        waits = context.run(_first_step, method, args, kwargs, completion)
    finally:
        _leave_task(loop, task)
    if waits is not None:
        spare.begin(*waits, context, completion)
    elif getrefcount(task) != spare.references + 1 or task._must_cancel:  # type: ignore[attr-defined]
        # The call has kept its task, or cancelled it.
        _Spare.give_up_next()


def _first_step(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None, completion: Completion
) -> tuple[Any, Any] | None:
    """Calls a method, and goes its first step at once instead of in the loop's next round. Gives the
    coroutine and what it waits for, if it does."""
    global _calling
    call.set(completion)
    _calling = True
    try:
        result = method(*args, **kwargs) if kwargs else method(*args)
    except BaseException as error:
        completion.raised(error)
        return None
    finally:
        _calling = False
    if type(result) is not CoroutineType and not asyncio.iscoroutine(result):
        completion.returned(result)
        return None
    return completion.step(result)


def is_in_call() -> bool:
    """Whether the running coroutine is that of a call, and not one that a call has started."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    code = getattr(task.get_coro(), "cr_code", None) if task is not None else None
    return task is None or code in (_tell.__code__, _Spare._go_on.__code__)


def _begin(
    loop: asyncio.AbstractEventLoop,
    method: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    completion: Completion,
) -> None:
    """Calls a method, whose coroutine goes its first step in the loop's next round."""
    global _calling
    before = call.set(completion)
    try:
        _calling = loop is _main
        result = method(*args, **kwargs) if kwargs else method(*args)
        _calling = False
        if not asyncio.iscoroutine(result):
            completion.returned(result)
            return
        task = loop.create_task(_tell(result, completion))
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
