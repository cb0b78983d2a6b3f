"""inspect_serializability: the culprit is named wherever it hides."""

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

from aktis.util import inspect_serializability
from aktis.util.check_serialize import FailureTuple

LOCK = threading.Lock()


class Holder:
    def __init__(self) -> None:
        self.fine = 1
        self.lock = threading.Lock()


def uses_global() -> None:
    with LOCK:
        pass


def with_closure() -> Callable[[], object]:
    lock = threading.Lock()
    fine = 1
    return lambda: (lock, fine)


def with_default(lock: Any = LOCK) -> None: ...


def inspect(value: Any, **options: Any) -> tuple[bool, set[FailureTuple], str]:
    out = io.StringIO()
    ok, failures = inspect_serializability(value, print_file=out, **options)
    return ok, failures, out.getvalue()


def test_what_is_fine() -> None:
    ok, failures, text = inspect({"a": [1, 2, Holder]}, name="thing")
    assert (ok, failures) == (True, set())
    assert "'thing'" in text
    assert "can be serialised" in text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (uses_global, "LOCK"),
        (with_closure(), "lock"),
        (Holder(), "lock"),
        (with_default, "0"),
        ({"key": threading.Lock()}, "key"),
        ([1, threading.Lock()], "1"),
    ],
    ids=["global", "closure", "attribute", "default", "dict", "list"],
)
def test_the_culprit_is_named(value: Any, name: str) -> None:
    ok, failures, text = inspect(value)
    assert not ok
    (failure,) = failures
    assert isinstance(failure.obj, type(threading.Lock()))
    assert failure.name == name
    assert failure.parent is value
    assert "_thread.lock" in text
    assert text.count("└─") == 1


def test_a_nested_culprit_is_found_and_drawn_as_a_tree() -> None:
    holder = Holder()

    def function() -> Any:
        return {"deep": holder}

    ok, failures, text = inspect(function)
    assert not ok
    (failure,) = failures
    assert failure.parent is holder
    lines = text.splitlines()
    assert "closure variable 'holder'" in lines[1]
    assert lines[2].startswith("   └─")
    assert "Holder.lock" in lines[2]
    assert lines[-1].startswith("hint:")


def test_depth_limits_the_search() -> None:
    holder = Holder()

    def function() -> Any:
        return holder

    _, failures, _ = inspect(function, depth=1)
    (failure,) = failures
    assert failure.obj is holder
    _, failures, _ = inspect(function, depth=0)
    (failure,) = failures
    assert failure.obj is function
    with pytest.raises(ValueError, match="depth"):
        inspect(function, depth=-1)


def test_several_culprits() -> None:
    first, second = threading.Lock(), threading.Lock()
    ok, failures, text = inspect(lambda: (first, second))
    assert not ok
    assert {(failure.name, failure.obj) for failure in failures} == {("first", first), ("second", second)}
    assert "├─" in text


def test_a_value_that_is_itself_the_culprit() -> None:
    lock = threading.Lock()
    ok, failures, _ = inspect(lock, name="the lock")
    assert not ok
    (failure,) = failures
    assert (failure.obj, failure.name) == (lock, "the lock")


def test_it_prints_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    inspect_serializability(1, name="one")
    assert "'one' (int) can be serialised" in capsys.readouterr().out


def test_failures_compare_by_identity() -> None:
    lock, other = threading.Lock(), threading.Lock()
    assert FailureTuple(lock, "a", None) == FailureTuple(lock, "a", None)
    assert FailureTuple(lock, "a", None) != FailureTuple(other, "a", None)
    unhashable = [lock]
    assert FailureTuple(unhashable, "a", None) in {FailureTuple(unhashable, "a", None)}
