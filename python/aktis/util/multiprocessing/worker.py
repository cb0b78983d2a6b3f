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

    def run(
        self, function: Callable[..., Any], chunk: list[tuple[Sequence[Any], dict[str, Any]]]
    ) -> list[Any]:
        """The values of `function(*args, **kwargs)` for each pair in `chunk`."""
        return [self._call(function, args, kwargs) for args, kwargs in chunk]

    def _call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return failed(error)


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
