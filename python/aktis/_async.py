"""The event loop of an actor with asynchronous methods: one thread that runs all its calls."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

_loop: asyncio.AbstractEventLoop | None = None
_lock = threading.Lock()


def run_async(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None, completion: Any
) -> None:
    """Has the event loop call a method; `completion` is told what it gave."""
    loop = _loop or _start()
    loop.call_soon_threadsafe(_begin, loop, method, args, kwargs, completion)


def _start() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="aktis-loop", daemon=True).start()
            _loop = loop
        return _loop


def _begin(
    loop: asyncio.AbstractEventLoop,
    method: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    completion: Any,
) -> None:
    try:
        result = method(*args, **kwargs) if kwargs else method(*args)
    except BaseException as error:
        completion.raised(error)
        return
    if not inspect.iscoroutine(result):
        completion.returned(result)
        return
    task = loop.create_task(result)
    task.add_done_callback(lambda task: _end(task, completion))


def _end(task: "asyncio.Task[Any]", completion: Any) -> None:
    if task.cancelled():
        completion.raised(asyncio.CancelledError())
        return
    error = task.exception()
    if error is not None:
        completion.raised(error)
    else:
        completion.returned(task.result())
