"""What the native part calls: each function here is cheap to import and loads what it needs at its first use.

The native part keeps this module (see `set_hooks`) and looks the functions up by name; the rest of Python
does not use it.
"""

from _pickle import loads as unpickle  # a third of what the whole of `pickle` costs to import
from types import GenericAlias
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from aktis._engine import Failure, ObjectRef


_dumps: Any = None


def ensure_session() -> None:
    """Starts a session if there is none: the first call of a program does not need `init`."""
    from aktis import _session

    _session.ensure()


def dumps(value: object) -> tuple[bytes, list[Any]]:
    """A value as bytes, and the large buffers that lie beside them."""
    global _dumps
    if _dumps is None:
        from aktis import _serialization

        _dumps = _serialization.dumps
    found: tuple[bytes, list[Any]] = _dumps(value)
    return found


def loads(data: bytes, buffers: Any) -> Any:
    """The value that `dumps` was given."""
    return unpickle(data, buffers=buffers)


def load(blob: bytes) -> Any:
    """An exported function or class."""
    from aktis import _serialization

    return _serialization.load_export(blob)


def to_exception(failure: "Failure") -> BaseException:
    """The exception that `get` raises for a failure."""
    from aktis import _errors

    return _errors.to_exception(failure)


def capture(error: BaseException, function: str) -> tuple[str, str, bytes]:
    """What a worker sends of an exception: the name of its class, a sentence, and the exception itself."""
    from aktis import _errors

    return _errors.capture(error, function)


def is_retriable(error: BaseException, retry_exceptions: bytes | bool) -> bool:
    """Whether a task that raised this is to be run again."""
    from aktis import _errors

    return _errors.is_retriable(error, retry_exceptions)


def timeout_error(message: str) -> BaseException:
    """What is raised when something was not there in time."""
    from aktis.exceptions import GetTimeoutError

    return GetTimeoutError(message)


def prepare(environment: str) -> str | None:
    """Makes a new worker what its tasks want it to be: variables, directory, where modules are found. If that
    cannot be, it says why, and whatever the worker is to run fails with that."""
    from aktis import _runtime_env

    return _runtime_env.prepare(environment)


def load_later() -> None:
    """The template has time: it imports what only some workers need."""
    from aktis import _worker

    _worker.load_later()


def async_runner() -> Any:
    """What has the event loop of an actor run a call."""
    from aktis import _async

    return _async.run_async


def run_callbacks() -> None:
    """The loop of the thread for callbacks; never returns while the process lives."""
    from aktis._engine import native

    while True:
        for callback, arguments in native.next_callbacks():
            try:
                callback(*arguments)
            except BaseException as error:
                native.report_unraisable(error, callback)
        # They may hold what somebody waits to see go.
        del callback, arguments


def run_loop() -> None:
    """Runs the event loop of an actor on the main thread; does not return."""
    from aktis import _async

    _async.run_loop()


def iterate_async(generator: Any) -> Any:
    """The items of an asynchronous generator, for a thread that waits for them."""
    from aktis import _async

    return _async.iterate(generator)


def dynamic(result: Any) -> Any:
    """The value of a task with `num_returns="dynamic"`: each item is an object of its own."""
    from aktis import _generator

    return _generator.dynamic(result)


def flush() -> None:
    """A worker has nothing to do: what user code printed is to be seen."""
    from aktis import _worker

    _worker.flush()


def write_output(is_error: bool, lines: list[str]) -> None:
    """Workers have printed something."""
    from aktis import _output

    _output.write(is_error, lines)


def exits() -> None:
    """A worker ends as it should: Python's own end is to run."""
    from aktis import _worker

    _worker.exits()


def class_method(instance: Any, name: str, found: Any) -> Any:
    """The method of an instance's class, bound to it, where an attribute of the instance may hide it."""
    for cls in type(instance).__mro__:
        member = vars(cls).get(name)
        if member is not None:
            bind = getattr(type(member), "__get__", None)
            return found if bind is None else bind(member, instance, type(instance))
    return found


def save(instance: Any) -> bytes:
    """The state of the actor of this process, for a checkpoint."""
    from aktis import _checkpoint

    return _checkpoint.save(instance)


def restore(cls: Any, saved: bytes) -> Any:
    """The instance that the actor of this process is, made of a checkpoint."""
    from aktis import _checkpoint

    return _checkpoint.restore(cls, saved)


def construct(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """The instance that the actor of this process is."""
    from aktis import _worker

    return _worker.construct(cls, args, kwargs or {})


def leave_process(error: SystemExit) -> None:
    """A method called `sys.exit`: the process of its actor ends."""
    from aktis import _worker

    _worker.leave_process(error)


# --- what references can do in Python ---------------------------------------------------------


def await_ref(reference: "ObjectRef[Any]") -> "Generator[Any, None, Any]":
    """`await ref`."""
    from aktis import _futures

    return _futures.await_ref(reference)


def future_of(reference: "ObjectRef[Any]") -> Any:
    """The reference as a `concurrent.futures.Future`."""
    from aktis import _futures

    return _futures.future_of(reference)


def as_future(reference: "ObjectRef[Any]", _internal: bool = False) -> Any:
    """The reference as an `asyncio.Future` of the running loop."""
    from aktis import _futures

    return _futures.as_future(reference)


def task_id(reference: "ObjectRef[Any]") -> Any:
    """The id of the task that makes the object: the object's without the index in its last four bytes."""
    from aktis._ids import TaskID

    return TaskID(reference.binary()[:12] + bytes(4))


def job_id(reference: "ObjectRef[Any]") -> Any:
    """The id of the job that the reference belongs to."""
    from aktis import _session
    from aktis._ids import JobID

    return JobID(_session.job_id())


def class_getitem(cls: type, item: Any) -> GenericAlias:
    """`ObjectRef[int]`, as a hint."""
    return GenericAlias(cls, item)
