"""What runs in the processes of a pool."""

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from aktis.util.multiprocessing.results import Failed


class PoolWorker:
    """An actor that applies functions to chunks of arguments. Exceptions come back as values, so that one
    of them costs no other result of its chunk."""

    def __init__(self, initializer: Callable[..., object] | None, initargs: Sequence[Any]) -> None:
        if initializer is not None:
            initializer(*initargs)

    def run(self, function: Callable[..., Any], how: str, items: list[Any]) -> tuple[list[Any], bool]:
        """The values of a function for each of `items`, and whether some are `Failed`. `how` says what an
        item is: "one" argument, "star" for several, or "call" for several and those with names."""
        values: list[Any] = []
        any_failed = False
        for item in items:
            try:
                if how == "one":
                    values.append(function(item))
                elif how == "star":
                    values.append(function(*item))
                else:
                    values.append(function(*item[0], **item[1]))
            except Exception as error:
                any_failed = True
                values.append(failed(error))
        return values, any_failed


class RemoteTraceback(Exception):
    """Carries the text of a traceback of another process; it is the `__cause__` of the exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


class _RaisedRemotely(Failed):
    """`Failed` that takes the text of the traceback through pickle, which drops tracebacks and causes."""

    def __init__(self, error: BaseException, text: str) -> None:
        super().__init__(error)
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.error, self.text)


def failed(error: Exception) -> Failed:
    """The exception as a value that can be sent; as a text with its class if it cannot be pickled."""
    import cloudpickle

    text = f'\n"""\n{"".join(traceback.format_exception(error))}"""'
    # Frames hold locals that need not be picklable, and keep them alive.
    error.__traceback__ = None
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        described = f"{type(error).__name__}: {error}"
        error = RuntimeError(f"{described} (the exception itself cannot be pickled)")
    return _RaisedRemotely(error, text)


def _rebuild(error: BaseException, text: str) -> Failed:
    error.__cause__ = RemoteTraceback(text)
    return Failed(error)
