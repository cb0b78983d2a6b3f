"""What a worker process does in Python, besides running tasks."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def preload() -> None:
    """Imports, in the template, what every worker would import at its first task."""
    import aktis._errors
    import aktis._futures
    import aktis._hooks
    import aktis._labels
    import aktis._runtime_env
    import aktis._serialization  # noqa: F401
    from aktis import _output, _runtime_env

    _runtime_env.job()
    _runtime_env.preload()
    _output.mark_streams()
    # What lives now lives as long as the template: the collector need not touch, and so copy, its pages.
    gc.collect()
    gc.freeze()


def load_later() -> None:
    """Imports, in the template, what actors with an event loop need."""
    import aktis._async  # noqa: F401

    gc.collect()
    gc.freeze()


def main() -> None:
    """Runs tasks and calls until the session ends; never returns."""
    from aktis import _runtime_env
    from aktis._engine import native

    signal.signal(signal.SIGINT, on_interrupt)
    sys.breakpointhook = on_breakpoint
    sys.stdin = open(os.devnull)  # noqa: SIM115
    native.run_worker(_runtime_env.job().get("tuning", {}))


def on_interrupt(number: int, frame: FrameType | None) -> None:
    """A running task was cancelled: it is told by an exception."""
    from aktis._engine import native

    asynchronous = sys.modules.get("aktis._async")
    if native.is_interrupted() and (asynchronous is None or asynchronous.is_interruptible()):
        raise KeyboardInterrupt


def on_breakpoint(*args: Any, **kwargs: Any) -> Any:
    """What `breakpoint()` does here; another debugger that PYTHONBREAKPOINT names goes before."""
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **kwargs)
    from aktis import _debugger

    return _debugger.set_trace(sys._getframe(1))


def flush() -> None:
    """Nothing is left to do: what was printed without an end of line is sent on."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


_instance: Callable[[], Any] | None = None
"""A weak reference to the instance that the actor of this process is."""


def construct(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The instance that the actor of this process is; its constructor may be a coroutine."""
    if inspect_async(cls.__init__):
        from aktis import _async

        made = cls.__new__(cls, *args, **kwargs) if cls.__new__ is not object.__new__ else cls.__new__(cls)
        _async.run_first(made.__init__(*args, **kwargs))
    else:
        made = cls(*args, **kwargs)
    return set_instance(made)


def set_instance(made: Any) -> Any:
    """Says which instance the actor of this process is."""
    global _instance
    try:
        import weakref

        _instance = weakref.ref(made)
    except TypeError:
        _instance = lambda: made  # noqa: E731
    return made


def inspect_async(function: Any) -> bool:
    """Whether a function is an `async def`."""
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & 0x80)  # CO_COROUTINE, without the import of inspect


def leave_process(error: SystemExit) -> None:
    """Ends the process with the code that `sys.exit` was given, after its exit handlers."""
    from aktis import _errors

    code = _errors.exit_code(error)
    if isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    _run_exit_functions()
    os._exit(code)


def exits() -> None:
    """The actor of this process ends gracefully: what it left to be done at the end is done."""
    instance = _instance() if _instance is not None else None
    shut_down = getattr(type(instance), "__ray_shutdown__", None)
    if shut_down is not None:
        try:
            shut_down(instance)
        except BaseException:
            import logging

            logging.getLogger("aktis").exception("__ray_shutdown__ of %s failed", type(instance).__name__)
    _run_exit_functions()


def _run_exit_functions() -> None:
    import atexit

    atexit._run_exitfuncs()
    flush()
