"""What a worker process does in Python, besides running tasks."""

import gc
import os
import signal
import sys
from types import FrameType


def preload() -> None:
    """Imports, in the template, what every worker would import at its first task."""
    import aktis._errors
    import aktis._futures
    import aktis._hooks
    import aktis._labels
    import aktis._runtime_env
    import aktis._serialization  # noqa: F401
    from aktis import _output

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
    sys.stdin = open(os.devnull)  # noqa: SIM115
    native.run_worker(_runtime_env.job().get("tuning", {}))


def on_interrupt(number: int, frame: FrameType | None) -> None:
    """A running task was cancelled: it is told by an exception."""
    from aktis._engine import native

    asynchronous = sys.modules.get("aktis._async")
    if native.is_interrupted() and (asynchronous is None or asynchronous.is_interruptible()):
        raise KeyboardInterrupt


def flush() -> None:
    """Nothing is left to do: what was printed without an end of line is sent on."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


def exits() -> None:
    """The actor of this process ended by itself: what it left to be done at the end is done."""
    import atexit

    atexit._run_exitfuncs()
    flush()
