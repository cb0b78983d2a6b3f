"""One exception that is both a TaskError and the user's own (behaviour 1), made from what a worker sends."""

import dataclasses
import os
import pickle
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from aktis import _errors, exceptions
from aktis._engine import native
from aktis.exceptions import TaskError


def failure(**fields: Any) -> Any:
    """A failure as the native part gives it."""
    names = [
        "actor_id",
        "kind",
        "task_id",
        "object_id",
        "pid",
        "signal",
        "exit_code",
        "type_name",
        "payload",
        "cause",
    ]
    plain = {"message": "", "function": "", "out_of_memory": False, "is_crash": False, "is_restarting": False}
    return SimpleNamespace(**{**dict.fromkeys(names), **plain, **fields})


def through(error: BaseException, function: str = "task") -> BaseException:
    """What the caller gets of an exception that is raised in a worker."""
    try:
        raise error
    except BaseException as raised:
        type_name, message, payload = _errors.capture(raised, function)
    return _errors.to_exception(
        failure(kind="raised", message=message, function=function, type_name=type_name, payload=payload)
    )


class OddArguments(Exception):
    def __init__(self, number: int, *, unit: str) -> None:
        super().__init__(f"{number} {unit}")
        self.number = number
        self.unit = unit

    def text(self) -> str:
        return f"{self.number}-{self.unit}"


class OddNew(Exception):
    def __new__(cls, a: int, *, b: int) -> "OddNew":
        self = super().__new__(cls, a)
        self.b = b
        return self

    def __init__(self, a: int, *, b: int) -> None:
        self.a = a


class NoSubclasses(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("this class is final")


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class OwnPickle(Exception):
    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b

    def __reduce__(self) -> Any:
        return OwnPickle, (self.a, self.b)


class NotAnException(BaseException):
    pass


class FileTrouble(OSError):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(5, text)
        self.code = code


class Clashing(Exception):
    """Has fields with the names of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.pid = "mine"
        self.function_name = "mine too"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x", 2),
        KeyError("k"),
        OSError(2, "none", "file"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "reason"),
        StopIteration(3),
        ImportError("no", name="module"),
        GeneratorExit(),
        RecursionError("deep"),
        MemoryError(),
        OddArguments(3, unit="m"),
        OddNew(1, b=2),
        NoSubclasses("f"),
        Slotted(4),
        Frozen(5),
        OwnPickle(1, 2),
        NotAnException("b"),
        FileTrouble("t", 7),
        Clashing(),
        ExceptionGroup("g", [ValueError(1), OddArguments(1, unit="m")]),
        BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError(1)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_is_both(error: BaseException) -> None:
    found: Any = through(error)
    assert isinstance(found, TaskError)
    assert isinstance(found, type(error))
    assert type(found.cause) is type(error)
    names = [*vars(error), *getattr(type(error), "__slots__", ())]
    for name in [*names, "errno", "filename", "name", "reason", "value", "code"]:
        assert getattr(found, name, None) == getattr(error, name, None), name
        assert getattr(found.cause, name, None) == getattr(error, name, None), name
    if not isinstance(error, BaseExceptionGroup):
        assert found.args == error.args == found.cause.args
    assert f"task() (pid={os.getpid()})" in str(found)
    assert type(error).__name__ in str(found)
    assert "in through" in str(found), "the frame that raised"
    with pytest.raises(type(error)):
        raise found


def test_the_class_is_made_once() -> None:
    assert type(through(ValueError("a"))) is type(through(ValueError("b")))
    assert type(through(ValueError("a"))).__name__ == "TaskError(ValueError)"


def test_methods_work() -> None:
    found: Any = through(OddArguments(3, unit="m"))
    assert found.text() == "3-m"
    assert found.cause.text() == "3-m"
    found.number = 4
    assert found.text() == "4-m"
    assert found.cause.text() == "3-m"


def test_groups_can_be_split() -> None:
    seen = []
    try:
        raise through(ExceptionGroup("g", [ValueError(1), OddArguments(2, unit="m")]))
    except* ValueError as group:
        seen.append(group.exceptions)
    except* OddArguments as group:
        seen.append(group.exceptions)
    assert [type(group[0]) for group in seen] == [ValueError, OddArguments]
    assert seen[1][0].text() == "2-m"


def test_a_field_of_the_user_comes_first() -> None:
    found: Any = through(Clashing())
    assert (found.pid, found.function_name) == ("mine", "mine too")
    assert isinstance(found.cause, Clashing)


def test_it_can_be_pickled() -> None:
    found: Any = through(OddArguments(3, unit="m"))
    again: Any = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found)
    assert again.text() == "3-m"
    assert str(again) == str(found)
    assert type(again.cause) is OddArguments


def test_it_is_passed_on_by_other_tasks() -> None:
    inner = through(OddArguments(3, unit="m"), "inner")
    outer: Any = through(inner, "outer")
    assert isinstance(outer, OddArguments)
    assert type(outer.cause) is OddArguments
    assert outer.text() == "3-m"
    assert "inner()" in str(outer)
    assert "outer()" in str(outer)
    assert outer.function_name == "outer"


def test_what_cannot_be_pickled_arrives_as_text() -> None:
    class Locked(Exception):
        def __init__(self) -> None:
            super().__init__("with a lock")
            self.lock = threading.Lock()

    found = through(Locked())
    assert type(found) is TaskError
    assert type(found.cause) is exceptions.UnserializableException
    assert "isn't serializable" in str(found.cause)
    assert "Locked: with a lock" in str(found)
    again = pickle.loads(pickle.dumps(found))
    assert (type(again), again.type_name) == (TaskError, found.type_name)


def test_what_cannot_be_unpickled_arrives_as_text() -> None:
    class Trap(Exception):
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    found = through(Trap("text"))
    assert type(found) is TaskError
    assert "Trap: text" in str(found)


def test_a_broken_text_does_not_hide_the_exception() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    found = through(Silent())
    assert isinstance(found, TaskError)
    assert "Silent" in str(found)


def test_a_class_that_refuses_all_subclasses_is_still_the_cause() -> None:
    class Strict(type):
        def __new__(cls, name: str, bases: Any, members: Any) -> Any:
            if name != "Lonely":
                raise TypeError("no subclasses")
            return super().__new__(cls, name, bases, members)

    class Lonely(Exception, metaclass=Strict):
        pass

    found = through(Lonely("alone"))
    assert type(found) is TaskError
    assert "Lonely: alone" in str(found)


def test_exits_and_interrupts() -> None:
    crashed = through(SystemExit(3))
    assert isinstance(crashed, exceptions.WorkerCrashedError)
    assert crashed.exit_code == 3
    assert "exit code 3" in str(crashed)
    assert isinstance(through(KeyboardInterrupt()), exceptions.TaskCancelledError)


def test_a_failed_input_is_the_failure() -> None:
    type_name, message, payload = _errors.capture(OddArguments(1, unit="m"), "first")
    root = failure(
        kind="raised", message=message, function="first", type_name=type_name, payload=payload, pid=7
    )
    middle = failure(kind="input_failed", function="second", cause=root)
    found: Any = _errors.to_exception(failure(kind="input_failed", function="third", cause=middle))
    assert isinstance(found, OddArguments)
    assert str(found).index("third()") < str(found).index("second()") < str(found).index("first()")
    lost = _errors.to_exception(
        failure(kind="input_failed", function="second", cause=failure(kind="lost", message="gone"))
    )
    assert isinstance(lost, exceptions.ObjectLostError) and isinstance(lost, exceptions.TaskError)
    assert "second() did not run, because an input of it failed" in str(lost)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("worker_died", exceptions.WorkerCrashedError),
        ("actor_died", exceptions.ActorDiedError),
        ("cancelled", exceptions.TaskCancelledError),
        ("store", exceptions.ObjectStoreFullError),
        ("lost", exceptions.ObjectLostError),
        ("session_closed", exceptions.SessionClosedError),
        ("unknown_function", exceptions.AktisSystemError),
        ("codec", exceptions.AktisSystemError),
        ("panicked", exceptions.AktisSystemError),
        ("something new", exceptions.AktisSystemError),
    ],
)
def test_other_failures(kind: str, expected: type[BaseException]) -> None:
    found = _errors.to_exception(failure(kind=kind, message="because", function="f"))
    assert type(found) is expected
    assert "because" in str(found)
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is expected
    assert str(again) == str(found)


def test_the_constructors_exception_is_in_the_text_of_a_dead_actor() -> None:
    type_name, message, payload = _errors.capture(ValueError("no luck"), "A.__init__")
    cause = failure(kind="raised", message=message, type_name=type_name, payload=payload)
    found = _errors.to_exception(failure(kind="actor_died", message="it failed to construct", cause=cause))
    assert isinstance(found, exceptions.ActorDiedError)
    assert "ValueError: no luck" in str(found)


def test_which_exceptions_are_retried() -> None:
    some = pickle.dumps((ValueError, OSError))
    assert _errors.is_retriable(ValueError(), some)
    assert _errors.is_retriable(FileNotFoundError(), some)
    assert not _errors.is_retriable(TypeError(), some)
    assert _errors.is_retriable(through(ValueError()), some)
    assert _errors.is_retriable(TypeError(), b"")
    assert not _errors.is_retriable(KeyboardInterrupt(), b"")


def test_names_of_ray() -> None:
    assert exceptions.RayTaskError is TaskError
    assert exceptions.RayError is exceptions.AktisError
    assert issubclass(exceptions.GetTimeoutError, TimeoutError)
    assert issubclass(exceptions.ActorDiedError, exceptions.RayActorError)
    for name in exceptions.__all__:
        kind = getattr(exceptions, name)
        assert issubclass(kind, Exception), name
        made = kind("text")
        assert isinstance(pickle.loads(pickle.dumps(made)), kind), name


def test_task_errors_can_be_made_by_hand() -> None:
    made = TaskError("f", "ValueError: x", ValueError("x"))
    both = made.as_instanceof_cause()
    assert isinstance(both, ValueError)
    assert isinstance(both, TaskError)
    assert made.cause is not None


#: What `get` raises for each kind of failure, if there is nothing else to know about it.
RAISED = {
    "raised": exceptions.TaskError,
    "panicked": exceptions.AktisSystemError,
    "worker_died": exceptions.WorkerCrashedError,
    "actor_died": exceptions.ActorDiedError,
    "actor_group_removed": exceptions.ActorPlacementGroupRemoved,
    "cancelled": exceptions.TaskCancelledError,
    "deadline": exceptions.TaskDeadlineError,
    "group_removed": exceptions.TaskPlacementGroupRemoved,
    "unschedulable": exceptions.TaskUnschedulableError,
    "actor_unschedulable": exceptions.ActorUnschedulableError,
    "input_failed": exceptions.AktisSystemError,
    "unknown_function": exceptions.AktisSystemError,
    "codec": exceptions.AktisSystemError,
    "store": exceptions.ObjectStoreFullError,
    "refused": exceptions.LimitExceededError,
    "environment": exceptions.RuntimeEnvSetupError,
    "lost": exceptions.ObjectLostError,
    "reconstruction": exceptions.ObjectReconstructionFailedError,
    "no_retry_left": exceptions.ObjectReconstructionFailedMaxAttemptsExceededError,
    "not_on_record": exceptions.ObjectReconstructionFailedLineageEvictedError,
    "session_closed": exceptions.SessionClosedError,
}


def test_each_kind_of_failure_has_its_exception() -> None:
    assert set(RAISED) == set(native.FAILURE_KINDS)
    for kind, expected in RAISED.items():
        assert type(_errors.to_exception(failure(kind=kind, message="why"))) is expected, kind


def test_only_the_kernel_says_that_memory_ran_out() -> None:
    killed = failure(kind="worker_died", message="killed", pid=7, signal=9, out_of_memory=True)
    error = _errors.to_exception(killed)
    assert type(error) is exceptions.OutOfMemoryError
    assert error.pid == 7
    # What the worker has printed is no evidence.
    crashed = failure(kind="worker_died", message="its last words:\n  | CUDA out of memory", signal=11)
    assert type(_errors.to_exception(crashed)) is exceptions.WorkerCrashedError


def test_a_class_that_cannot_be_subclassed_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Final(type):
        def __new__(meta, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
            if any(isinstance(base, Final) for base in bases):
                raise TypeError("cannot be subclassed")
            return super().__new__(meta, name, bases, members)

    class Sealed(Exception, metaclass=Final):
        pass

    found = through(Sealed("text"))
    assert type(found) is TaskError
    assert type(found.cause).__name__ == "Sealed"
    assert "This exception is raised as RayTaskError only." in caplog.text
    assert "You can use `ray_task_error.cause` to access the user exception." in caplog.text
