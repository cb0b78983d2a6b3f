"""Everything that Aktis raises, in one family under `AktisError`; Ray's names are aliases.

A task that raised gives its caller one exception that is a `TaskError` and an instance of the user's own
class; how that is made is in `aktis._errors`. All the others say what happened to the process, the object or
the node.
"""

from typing import Any

__all__ = [
    "ActorAlreadyExistsError",
    "ActorClassInheritanceException",
    "ActorDiedError",
    "ActorError",
    "ActorHandleNotFoundError",
    "ActorPlacementGroupRemoved",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "AktisError",
    "AktisSystemError",
    "AsyncioActorExit",
    "AuthenticationError",
    "CancelledTaskError",
    "CrossLanguageError",
    "GetTimeoutError",
    "LimitExceededError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectFreedError",
    "ObjectLostError",
    "ObjectReconstructionFailedError",
    "ObjectReconstructionFailedLineageEvictedError",
    "ObjectReconstructionFailedMaxAttemptsExceededError",
    "ObjectStoreFullError",
    "OufOfBandObjectRefSerializationException",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "PlasmaObjectNotAvailable",
    "RayActorError",
    "RayCgraphCapacityExceeded",
    "RayChannelError",
    "RayChannelTimeoutError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "ReferenceCountingAssertionError",
    "RpcError",
    "RuntimeEnvSetupError",
    "SessionClosedError",
    "TaskCancelledError",
    "TaskError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "UnserializableException",
    "UserCodeException",
    "WorkerCrashedError",
]


class AktisError(Exception):
    """What all exceptions of Aktis are."""


class _Field:
    """Something that a task's failure tells, unless the user's exception has a field of that name."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return instance.__dict__.get("_aktis_record", {}).get(self.key)


class TaskError(AktisError):
    """A task or a method of an actor raised an exception.

    What `get` raises is also an instance of the user's class, with its fields and methods. `cause` is the
    exception as it was raised there; `str` shows where, with the remote traceback.
    """

    function_name = _Field("function")
    traceback_str = _Field("traceback")
    pid = _Field("pid")
    task_id = _Field("task_id")
    type_name = _Field("type_name")

    def __init__(
        self,
        function_name: str = "",
        traceback_str: str = "",
        cause: BaseException | None = None,
        pid: int | None = None,
        **more: Any,
    ) -> None:
        Exception.__init__(self, function_name, traceback_str, cause)
        self.__dict__["_aktis_record"] = {
            "function": function_name,
            "traceback": traceback_str,
            "cause": cause,
            "pid": pid,
            **more,
        }

    def __init_subclass__(cls, **_: Any) -> None:
        # Not cooperative on purpose: this class comes first among the bases of the classes made for users'
        # exceptions, and a user's class that refuses to be subclassed must not hide its own exception.
        pass

    @property
    def cause(self) -> Any:
        """The exception as it was raised in the task; None if it could not be sent."""
        return self.__dict__.get("_aktis_record", {}).get("cause")

    @cause.setter
    def cause(self, value: Any) -> None:
        self.__dict__["_aktis_record"] = {**self.__dict__.get("_aktis_record", {}), "cause": value}

    def as_instanceof_cause(self) -> BaseException:
        """This failure as an instance of the class of its cause as well."""
        from aktis import _errors

        return _errors.dual(self)

    def make_dual_exception_instance(self) -> BaseException:
        """The same under another name that Ray has."""
        return self.as_instanceof_cause()

    def __str__(self) -> str:
        record = self.__dict__.get("_aktis_record")
        if not record:
            return Exception.__str__(self)
        where = f"{record.get('function') or 'a task'}()"
        if record.get("pid"):
            where += f" (pid={record['pid']})"
        text = str(record.get("traceback") or "").rstrip("\n")
        return "\n".join([*record.get("context", ()), where, text])

    def __reduce__(self) -> Any:
        from aktis import _errors

        return _errors.reduce_task_error(self)


class TaskCancelledError(AktisError):
    """The task was cancelled, or was interrupted by a KeyboardInterrupt."""

    def __init__(self, message: str = "", task_id: Any = None) -> None:
        super().__init__(message or "the task was cancelled")
        self.task_id = task_id

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, self.__dict__)


class CancelledTaskError(TaskError, TaskCancelledError):
    """The task was cancelled while it ran."""

    def __init__(self, message: str = "", task_id: Any = None) -> None:
        TaskCancelledError.__init__(self, message, task_id)

    def __str__(self) -> str:
        return Exception.__str__(self)

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, self.__dict__)


class TaskDeadlineError(TaskCancelledError, TimeoutError):
    """The task was not done by its deadline, and was cancelled."""


class WorkerCrashedError(AktisError):
    """The process that ran the task died, more often than the task may be retried. The text says of what."""

    def __init__(
        self,
        message: str = "",
        *,
        pid: int | None = None,
        signal: int | None = None,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message or "the worker died unexpectedly while it ran the task")
        self.pid = pid
        self.signal = signal
        self.exit_code = exit_code

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, self.__dict__)


class NodeDiedError(WorkerCrashedError):
    """The node that ran the task is dead, or cannot be reached."""


class OutOfMemoryError(WorkerCrashedError):
    """The process that ran the task was killed because memory ran out."""


class ActorError(AktisError):
    """A call of an actor's method could not be completed because of the actor.

    `actor_id` is the actor's id in hexadecimal digits; `actor_init_failed` tells whether its constructor
    failed.
    """

    def __init__(
        self, message: str = "", actor_id: str | None = None, actor_init_failed: bool = False
    ) -> None:
        super().__init__(message or "the actor died")
        self.actor_id = actor_id
        self.actor_init_failed = actor_init_failed

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, self.__dict__)


class ActorDiedError(ActorError):
    """The actor is gone for good: it was killed, exited, failed to construct, or died too often."""


class ActorUnavailableError(ActorError):
    """The actor cannot be reached now, but may come back. The call may or may not have run."""


class ActorPlacementGroupRemoved(ActorDiedError):
    """The placement group that the actor was in, or was to be in, has been removed."""


class TaskPlacementGroupRemoved(AktisError):
    """The placement group that the task was to run in has been removed."""


class TaskUnschedulableError(AktisError):
    """The task can never be scheduled, for example because the node it insists on is not there."""


class ActorUnschedulableError(ActorDiedError):
    """The actor can never be scheduled, for example because the node it insists on is not there."""


class PendingCallsLimitExceeded(AktisError):
    """The actor has `max_pending_calls` calls waiting already."""


class ActorAlreadyExistsError(ValueError, AktisError):
    """The name is taken by another actor."""


class ActorHandleNotFoundError(ValueError, AktisError):
    """There is no actor with this name."""


class ActorClassInheritanceException(TypeError):
    """A class was to be derived from an actor class instead of from the plain class inside."""


class GetTimeoutError(AktisError, TimeoutError):
    """The value was not there in time."""


class LimitExceededError(AktisError, RuntimeError):
    """A limit of the node or of the system is reached, such as that on combinations of resources."""


class ObjectStoreFullError(AktisError):
    """The object store is full, and nothing in it can be moved to disk."""


class OutOfDiskError(AktisError):
    """The disk that objects are spilled to is full."""


class ObjectLostError(AktisError):
    """No copy of the object is left."""

    def __init__(self, message: str = "", object_ref_hex: str | None = None) -> None:
        super().__init__(message or "the object is lost")
        self.object_ref_hex = object_ref_hex

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, self.__dict__)


class ObjectFetchTimedOutError(ObjectLostError):
    """The object could not be fetched from another node in time."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was freed although it is referenced."""


class ObjectFreedError(ObjectLostError):
    """The object was freed by hand."""


class OwnerDiedError(ObjectLostError):
    """The process that would have made the object died before there was a value."""


class ObjectReconstructionFailedError(ObjectLostError):
    """The object is lost and cannot be computed again."""


class ObjectReconstructionFailedMaxAttemptsExceededError(ObjectReconstructionFailedError):
    """The object is lost, and its task has run as often as it may (`max_retries`)."""


class ObjectReconstructionFailedLineageEvictedError(ObjectReconstructionFailedError):
    """The object is lost, and how it was made is not on record any more (`max_lineage_bytes`)."""


class RuntimeEnvSetupError(AktisError):
    """The environment that a task or an actor asked for could not be made."""


class AktisSystemError(AktisError):
    """Something failed inside of Aktis, not in the program."""


class SessionClosedError(AktisSystemError):
    """The session ended before there was a value, or the reference belongs to an earlier session."""


class LocalRayletDiedError(AktisSystemError):
    """The node of this process died."""


class AuthenticationError(AktisError):
    """The cluster refused the token."""


class CrossLanguageError(AktisError):
    """A function written in another language failed."""


class UnserializableException(AktisError):
    """An exception arrived that cannot be unpickled here."""


class UserCodeException(AktisError):
    """The program's own code failed."""


class AsyncioActorExit(AktisError):
    """Raised by `exit_actor()` in an asynchronous actor; ends it."""


class OufOfBandObjectRefSerializationException(AktisError):
    """A reference was pickled outside of calls and values, which the program has forbidden
    (`RAY_allow_out_of_band_object_ref_serialization=0`). The name is spelt as in Ray."""


class RpcError(AktisError):
    """A message between processes could not be delivered."""


class RayChannelError(AktisSystemError):
    """A channel of a compiled graph failed."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """A channel of a compiled graph was not ready in time."""


class RayCgraphCapacityExceeded(AktisSystemError):
    """A compiled graph has too many executions in flight."""


def _again(kind: Any, args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """Makes an exception again as it was, without its constructor."""
    error: BaseException = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


RayError = AktisError
RayTaskError = TaskError
RayActorError = ActorError
RaySystemError = AktisSystemError
PlasmaObjectNotAvailable = GetTimeoutError
