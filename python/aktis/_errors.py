"""Failures as exceptions: what a worker sends of an exception, and what `get` raises for a failure.

1. For an exception of a task, one object is raised that is a `TaskError` and an instance of the user's class.
   Its class is made once for each class of the user's.
2. The object is a twin of the exception as it was raised: same fields, no constructor called. `cause` is the
   original.
3. What cannot be pickled arrives as text. Nothing here may fail: a failure to report a failure would be a
   hang.
"""

import copy
import os
import pickle
from typing import TYPE_CHECKING, Any

from aktis import exceptions
from aktis._serialization import dumps_whole, revive_exception, state_of, static_base
from aktis.exceptions import TaskError

if TYPE_CHECKING:
    from aktis._engine import Failure

# The engine sends 64 KiB of a failure at most; these together are less.
TEXT_BYTES_MAX = 12 << 10
SENTENCE_BYTES_MAX = 4 << 10
PICKLED_BYTES_MAX = 40 << 10
PART_BYTES_MAX = 4 << 10

# The exceptions for failures of which there is nothing to say but the text.
_KINDS: dict[str, type[exceptions.AktisError]] = {
    "actor_died": exceptions.ActorDiedError,
    "actor_group_removed": exceptions.ActorPlacementGroupRemoved,
    "actor_unschedulable": exceptions.ActorUnschedulableError,
    "codec": exceptions.AktisSystemError,
    "environment": exceptions.RuntimeEnvSetupError,
    "group_removed": exceptions.TaskPlacementGroupRemoved,
    "input_failed": exceptions.AktisSystemError,
    "lost": exceptions.ObjectLostError,
    "no_retry_left": exceptions.ObjectReconstructionFailedMaxAttemptsExceededError,
    "not_on_record": exceptions.ObjectReconstructionFailedLineageEvictedError,
    "panicked": exceptions.AktisSystemError,
    "reconstruction": exceptions.ObjectReconstructionFailedError,
    "refused": exceptions.LimitExceededError,
    "session_closed": exceptions.SessionClosedError,
    "unknown_function": exceptions.AktisSystemError,
    "unschedulable": exceptions.TaskUnschedulableError,
}

_duals: dict[type, type | None] = {TaskError: TaskError}

# --- in the worker ----------------------------------------------------------------------------


def capture(error: BaseException, function: str) -> tuple[str, str, bytes]:
    """What a worker sends of an exception: its class's name, a sentence, and a record to make it from."""
    text = _remote_traceback(error)
    if isinstance(error, TaskError) and error.__dict__.get("_aktis_record"):
        # A task that passes on another's failure: the user's exception is the one that began it.
        inner = error.__dict__["_aktis_record"]
        type_name = inner.get("type_name") or type(error).__name__
        pickled = inner.get("pickled") or _pickled(inner.get("cause"))
    else:
        type_name = _type_name(type(error))
        pickled = _pickled(error)
    record = {
        "function": function,
        "pid": os.getpid(),
        "traceback": text,
        "type_name": type_name,
        "pickled": pickled,
        "exit": exit_code(error) if isinstance(error, SystemExit) else None,
    }
    if isinstance(error, SystemExit):
        from aktis import _engine

        record["actor_id"] = _hex(_engine.context().actor_id) if _engine.current() is not None else None
    return type_name, _sentence(error), pickle.dumps(record, protocol=5)


def is_retriable(error: BaseException, retry_exceptions: bytes | bool) -> bool:
    """Whether a task that raised this is to be run again."""
    if isinstance(retry_exceptions, bool):
        return retry_exceptions and isinstance(error, Exception)
    if not retry_exceptions:
        return isinstance(error, Exception)
    try:
        kinds = pickle.loads(retry_exceptions)
    except Exception:
        return False
    return isinstance(error, kinds)


def _pickled(error: BaseException | None) -> bytes | None:
    if error is None:
        return None
    try:
        blob = dumps_whole(error)
        if len(blob) > PICKLED_BYTES_MAX:
            blob = dumps_whole(_shortened(error))
        pickle.loads(blob)
    except BaseException:
        return None
    return blob if len(blob) <= PICKLED_BYTES_MAX else None


def _shortened(error: BaseException) -> BaseException:
    """A twin of an exception that is too large to travel, with text in place of what is large."""
    args, state = state_of(error)
    parts = {name: _shortened_part(value) for name, value in state.items()}
    return revive_exception(type(error), tuple(map(_shortened_part, args)), parts)


def _shortened_part(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value, PART_BYTES_MAX)
    size = len(dumps_whole(value))
    if size <= PART_BYTES_MAX:
        return value
    if isinstance(value, bytes):
        return value[:PART_BYTES_MAX]
    return f"[{type(value).__name__}: {size} bytes, too large to travel with an exception]"


def _remote_traceback(error: BaseException) -> str:
    """The traceback, from the user's first frame on."""
    import traceback

    here = os.path.dirname(__file__)
    frames = error.__traceback__
    while (
        frames is not None
        and frames.tb_frame.f_code.co_filename.startswith(here)
        and frames.tb_next is not None
    ):
        frames = frames.tb_next
    try:
        lines = traceback.format_exception(type(error), error, frames)
    except BaseException as problem:
        lines = [f"{_type_name(type(error))}: (its text could not be made: {type(problem).__name__})\n"]
    return _cut("".join(lines), TEXT_BYTES_MAX)


def _cut(text: str, limit: int) -> str:
    """A text that can be encoded, without its middle if it is too long."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) > limit:
        half = limit // 2
        left_out = f"\n[... {len(encoded) - 2 * half} bytes left out ...]\n"
        encoded = encoded[:half] + left_out.encode() + encoded[-half:]
    return encoded.decode(errors="ignore")


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = "(its text could not be made)"
    return _cut(f"{type(error).__name__}: {text}" if text else type(error).__name__, SENTENCE_BYTES_MAX)


def _type_name(cls: type) -> str:
    return (
        cls.__qualname__
        if cls.__module__ in ("builtins", "__main__")
        else f"{cls.__module__}.{cls.__qualname__}"
    )


def exit_code(error: SystemExit) -> int:
    """The code that a process ends with for this exception."""
    code = error.code
    if code is None:
        return 0
    return code if isinstance(code, int) else 1


# --- at the caller ----------------------------------------------------------------------------


def to_exception(failure: "Failure") -> BaseException:
    """The exception that `get` raises for a failure."""
    _note(failure)
    context: list[str] = []
    function = failure.function or ""
    while failure.kind == "input_failed" and failure.cause is not None:
        context.append(f"{failure.function or 'a task'}() did not run, because an input of it failed:")
        failure = failure.cause
    error = _exception(failure, context)
    if (
        context
        and isinstance(error, exceptions.ObjectLostError)
        and (lost := _lost_input(error, function, context))
    ):
        return lost
    if context and not isinstance(error, TaskError):
        for line in context:
            error.add_note(line.rstrip(":"))
    return error


def _lost_input(error: exceptions.ObjectLostError, function: str, context: list[str]) -> BaseException | None:
    """The failure of a task whose argument is lost: a `TaskError`, too, unlike that of the argument."""
    cause = copy.copy(error)
    text = "\n".join([*context, f"{type(error).__name__}: {error}"])
    record = {"function": function, "traceback": text, "cause": cause, "type_name": _type_name(type(error))}
    return _as_dual(error, record)


FAILURES_MAX = 10_000
_failures: dict[tuple[int, str], tuple[str, str, str]] = {}
"""Failures that this process has been told of, by session and task."""

_TYPES = {
    "raised": "TASK_EXECUTION_EXCEPTION",
    "cancelled": "TASK_CANCELLED",
    "deadline": "TASK_CANCELLED",
    "worker_died": "WORKER_DIED",
    "actor_died": "ACTOR_DIED",
    "actor_group_removed": "ACTOR_PLACEMENT_GROUP_REMOVED",
    "actor_unschedulable": "ACTOR_UNSCHEDULABLE_ERROR",
    "group_removed": "TASK_PLACEMENT_GROUP_REMOVED",
    "environment": "RUNTIME_ENV_SETUP_FAILED",
    "unschedulable": "TASK_UNSCHEDULABLE_ERROR",
    "lost": "OBJECT_LOST",
    "reconstruction": "OBJECT_UNRECONSTRUCTABLE",
    "no_retry_left": "OBJECT_UNRECONSTRUCTABLE_MAX_ATTEMPTS_EXCEEDED",
    "not_on_record": "OBJECT_UNRECONSTRUCTABLE_LINEAGE_EVICTED",
}


def failures() -> dict[str, tuple[str, str, str]]:
    """Failures that this process has been told of: task -> type as Ray calls it, message, function."""
    here = _session_number()
    return {task: told for (session, task), told in _failures.items() if session == here}


def _session_number() -> int:
    from aktis import _engine

    found = _engine.current()
    return -1 if found is None else found.number()


def _note(failure: "Failure") -> None:
    """Keeps a failure for the lists of tasks."""
    if failure.task_id is None or failure.kind == "session_closed":
        return
    text, kind = failure.message, _TYPES.get(failure.kind, "TASK_FAILED")
    if _is_of_node(failure):
        text, kind = f"{_NODE_DIED}\n{text}", "NODE_DIED"
    elif failure.type_name == "KeyboardInterrupt":
        kind = "TASK_CANCELLED"
    elif failure.kind == "worker_died" and failure.exit_code is not None:
        text = f"Worker exits with an exit code {failure.exit_code}.\n{text}"
    elif failure.kind == "actor_died":
        text = str(_actor_died(exceptions.ActorDiedError, failure, text))
    if len(_failures) >= FAILURES_MAX:
        del _failures[next(iter(_failures))]
    _failures[_session_number(), failure.task_id.hex()] = (kind, text, failure.function)


def _exception(failure: "Failure", context: list[str]) -> BaseException:
    kind = failure.kind
    if kind == "raised":
        return _raised(failure, context)
    text = _text(failure)
    if kind == "environment":
        from aktis import _session

        # On a cluster, it is not told which node it was.
        is_own = _session.is_initialized() and not _session.is_attached()
        return exceptions.RuntimeEnvSetupError(f"[Node {'127.0.0.1' if is_own else 'unknown'}] {text}")
    if kind == "worker_died":
        cls = exceptions.OutOfMemoryError if failure.out_of_memory else exceptions.WorkerCrashedError
        if _is_of_node(failure):
            cls, text = exceptions.NodeDiedError, f"{_NODE_DIED}\n{text}"
        return cls(text, pid=failure.pid, signal=failure.signal, exit_code=failure.exit_code)
    if kind == "cancelled":
        # A call of an actor is told to its event loop, as a task is that runs.
        cancelled = (
            exceptions.TaskCancelledError if failure.actor_id is None else exceptions.CancelledTaskError
        )
        return cancelled(
            text.replace("it was cancelled", "it was cancelled (TaskCancelledError)"),
            task_id=_hex(failure.task_id),
        )
    if kind == "deadline":
        return exceptions.TaskDeadlineError(text, task_id=_hex(failure.task_id))
    if kind == "store":
        full_disk = "the disk is full" in text
        return exceptions.OutOfDiskError(text) if full_disk else exceptions.ObjectStoreFullError(text)
    if kind == "session_closed":
        from aktis import _session

        text = _session.loss() or text
    known = _KINDS.get(kind, exceptions.AktisSystemError)
    if issubclass(known, exceptions.ObjectLostError):
        return known(text, object_ref_hex=_hex(failure.object_id))
    if failure.is_restarting and os.environ.get("AKTIS_COMPAT") == "1" and not _is_dead(failure.actor_id):
        return exceptions.ActorUnavailableError(text, actor_id=_hex(failure.actor_id))
    if issubclass(known, exceptions.ActorDiedError):
        return _actor_died(known, failure, text)
    return known(text)


_NODE_DIED = "Task failed because the node it was running on is dead or unavailable"


def _is_of_node(failure: "Failure") -> bool:
    """Whether a worker is lost because its node is: nobody there could say which process it was."""
    return failure.kind == "worker_died" and failure.pid == 0 and "the node is gone" in failure.message


def _is_dead(actor: bytes | None) -> bool:
    """Whether the node says that an actor is gone for good."""
    from aktis.util._runtime import state

    try:
        rows = [row for row in state("actors") if row["id"] == actor]
    except Exception:
        return True
    return not rows or rows[0]["state"] == "DEAD"


def _actor_died(known: type[exceptions.ActorDiedError], failure: "Failure", text: str) -> BaseException:
    """The exception for a call whose actor is gone: Ray's phrase first, then our sentence."""
    message = failure.message
    cause = failure.cause
    init_failed = "could not be constructed" in message
    phrase = None
    if "the node is gone" in message:
        phrase = "The actor died because its node has died."
    elif failure.is_crash:
        phrase = "The actor is dead because its worker process has died"
    elif cause is not None and init_failed and "its actor exited" in cause.message:
        phrase, init_failed = _EXITED, False
    elif message in _KILLED:
        phrase = _KILLED_PHRASE
    elif "its actor exited" in message:
        phrase = _EXITED
    elif "the process that created the actor is gone" in message:
        phrase = "The actor is dead because its owner has died"
    elif init_failed and _LOST in text:
        reason = " (LINEAGE_DISABLED)" if _lineage_is_off() else ""
        phrase = f"The actor is dead because the arguments of its constructor are lost: {_LOST}Error{reason}"
    if phrase is not None:
        text = f"{phrase}\n{text}"
    return known(text, actor_id=_hex(failure.actor_id), actor_init_failed=init_failed)


_LOST = "ObjectReconstructionFailed"


def _lineage_is_off() -> bool:
    """Whether no finished task of this job stays on record."""
    from aktis import _runtime_env, _session
    from aktis._engine import current

    found = current()
    session = _session.of(found) if found is not None else None
    tuning = session.settings.tuning if session is not None else _runtime_env.job().get("tuning", {})
    return tuning.get("lineage_bytes_max") == 0


def death_cause(reason: str) -> str:
    """The cause of an actor's death as the state API tells it, Ray's phrase first."""
    return f"{_KILLED_PHRASE}\n{reason}" if reason in _KILLED else reason


_KILLED = ("the actor was killed", "its actor was killed", "killed", "the actor was ended")
_KILLED_PHRASE = "The actor is dead because it was killed by `ray.kill`"
_EXITED = "The actor is dead because its worker process has died: INTENDED_USER_EXIT"


def _raised(failure: "Failure", context: list[str]) -> BaseException:
    try:
        record = pickle.loads(failure.payload) if failure.payload else {}
    except Exception:
        record = {}
    record.setdefault("traceback", failure.message)
    record.setdefault("type_name", failure.type_name)
    record["function"] = record.get("function") or failure.function
    record["pid"] = record.get("pid") or failure.pid
    record["task_id"] = _hex(failure.task_id)
    record["context"] = context
    if record["type_name"] == "SystemExit":
        code = record.get("exit")
        return exceptions.WorkerCrashedError(
            f"{record['function']}() ended its worker {record['pid']} with exit code {code} (SystemExit)\n"
            "hint: return from the function, or raise another exception, instead of sys.exit",
            pid=record["pid"],
            exit_code=code,
        )
    if record["type_name"] == "KeyboardInterrupt":
        return exceptions.CancelledTaskError(
            f"TaskCancelledError: {record['function']}() was cancelled, or interrupted by a "
            f"KeyboardInterrupt, in process {record['pid']}",
            task_id=record["task_id"],
        )
    if record["type_name"] == "aktis._actor.ActorExit":
        return exceptions.ActorDiedError(
            f"{_EXITED}\n{record['function']}() ended its actor with exit_actor()",
            actor_id=record.get("actor_id"),
        )
    return from_record(record)


def _text(failure: "Failure") -> str:
    parts = [f"{failure.function}: {failure.message}" if failure.function else failure.message]
    cause = failure.cause
    while cause is not None:
        parts.append(f"caused by: {_cause_text(cause)}")
        cause = cause.cause
    return "\n".join(parts)


def _cause_text(failure: "Failure") -> str:
    """A cause in full: of an exception that was raised, with its traceback."""
    if failure.kind == "raised" and failure.payload:
        try:
            record = pickle.loads(failure.payload)
            return f"{record['function']}() (pid={record['pid']})\n{record['traceback']}"
        except Exception:
            pass
    return f"{failure.function}: {failure.message}" if failure.function else failure.message


def _hex(binary: bytes | None) -> str | None:
    return binary.hex() if binary else None


# --- one object that is both ------------------------------------------------------------------


def from_record(record: dict[str, Any]) -> BaseException:
    """The exception that a record, made by `capture`, describes."""
    cause: BaseException | None = None
    twin: BaseException | None = None
    if record.get("pickled"):
        try:
            cause = pickle.loads(record["pickled"])
            twin = pickle.loads(record["pickled"])
        except BaseException:
            cause = None
    record["cause"] = cause
    if cause is None or twin is None:
        name = record.get("type_name") or "The exception"
        record["cause"] = exceptions.UnserializableException(
            f"{name} isn't serializable, so that only its text has come\n"
            "hint: leave out of the exception what cannot be pickled, or give its class a __reduce__"
        )
        return _plain(record)
    made = _as_dual(twin, record)
    if made is not None:
        return made
    import logging

    logging.getLogger("aktis").warning(
        "%s cannot be subclassed. This exception is raised as RayTaskError only. You can use "
        "`ray_task_error.cause` to access the user exception.",
        type(cause).__qualname__,
    )
    return _plain(record)


def dual(error: TaskError) -> BaseException:
    """A `TaskError` that somebody made by hand, as an instance of its cause's class as well."""
    record = dict(error.__dict__.get("_aktis_record", {}))
    cause = record.get("cause")
    if cause is None or isinstance(error, type(cause)):
        return error
    record["pickled"] = _pickled(cause)
    record.setdefault("type_name", _type_name(type(cause)))
    return from_record(record) if record["pickled"] else error


def reduce_task_error(error: TaskError) -> Any:
    """How a `TaskError` is pickled: as its record, from which it is made again."""
    record = dict(error.__dict__.get("_aktis_record", {}))
    cause = record.pop("cause", None)
    if (
        cause is not None
        and not isinstance(cause, exceptions.UnserializableException)
        and not record.get("pickled")
    ):
        record["pickled"] = _pickled(cause)
    return from_record, (record,)


def _plain(record: dict[str, Any]) -> TaskError:
    error = TaskError(record.get("function") or "", record.get("traceback") or "", record.get("cause"))
    error.__dict__["_aktis_record"] = record
    return error


def _as_dual(twin: BaseException, record: dict[str, Any]) -> BaseException | None:
    """A `TaskError` of an exception, which is otherwise what it was; None if its class forbids that."""
    cls = dual_class(type(twin))
    if cls is None:
        return None
    made = _reclassed(twin, cls) or _rebuilt(twin, cls)
    if made is not None:
        made.__dict__["_aktis_record"] = record
    return made


def dual_class(cls: type) -> type | None:
    """The class that is both `TaskError` and the user's, made once; None if there can be none."""
    if cls not in _duals:
        if issubclass(TaskError, cls):
            _duals[cls] = TaskError
        else:
            try:
                namespace = {"__module__": "aktis.exceptions", "__doc__": cls.__doc__, "__slots__": ()}
                name = "RayTaskError" if os.environ.get("AKTIS_COMPAT") == "1" else "TaskError"
                _duals[cls] = type(cls)(f"{name}({cls.__name__})", (TaskError, cls), namespace)
            except Exception:
                _duals[cls] = None
    return _duals[cls]


def _reclassed(twin: BaseException, cls: type) -> BaseException | None:
    """The twin itself, with another class; Python allows that where both are laid out in the same way."""
    try:
        object.__setattr__(twin, "__class__", cls)
    except TypeError:
        return None
    return twin


def _rebuilt(twin: BaseException, cls: type) -> BaseException | None:
    """A new object with all that the twin has, made by the built-in class that both have as their base."""
    base = static_base(type(twin))
    args, state = state_of(twin)
    for target in (cls, None):
        try:
            if target is None:
                # A group with a KeyboardInterrupt inside may not be an Exception when it is made; later it
                # may.
                middle = type(base)("Middle", (base,), {})
                made = _reclassed(revive_exception(middle, args, state), cls)
            else:
                made = revive_exception(target, args, state)
        except Exception:
            continue
        if made is not None:
            return made
    return None
