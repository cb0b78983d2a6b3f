"""Values as bytes: buffers beside them, custom serialisers, and errors that name what cannot be pickled."""

import array
import pickle
import threading
from typing import Any

import pytest

import aktis
from aktis import _serialization
from aktis._ids import ActorID, JobID, NodeID, TaskID

lock = threading.Lock()


def back_and_forth(value: Any) -> Any:
    data, buffers = _serialization.dumps(value)
    return _serialization.loads(data, [bytes(buffer) for buffer in buffers])


def test_large_buffers_lie_beside_the_bytes() -> None:
    large = pickle.PickleBuffer(bytearray(1 << 20))
    data, buffers = _serialization.dumps([large, large])
    assert len(data) < 1000
    assert [memoryview(buffer).nbytes for buffer in buffers] == [1 << 20, 1 << 20]


def test_small_buffers_stay_inside() -> None:
    data, buffers = _serialization.dumps(pickle.PickleBuffer(b"x" * (_serialization.BUFFER_BYTES_MIN - 1)))
    assert not buffers
    assert len(data) >= _serialization.BUFFER_BYTES_MIN - 1


def test_arrays_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(10_000, dtype="float32").reshape(100, 100)
    for value in (values, values.T, values[::2, ::3], numpy.asfortranarray(values)):
        data, buffers = _serialization.dumps({"a": value})
        assert (back_and_forth({"a": value})["a"] == value).all()
        if value.flags.contiguous:
            assert len(data) < 1000
            assert len(buffers) == 1


def test_values_come_back() -> None:
    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Local) and other.x == self.x

    function = back_and_forth(lambda x: x + len("abc"))
    assert function(1) == 4
    assert back_and_forth(Local(3)) == Local(3)
    for value in ({"a": {1, 2}}, array.array("d", [1.0]), [ValueError("x").args], range(3), 2**100):
        assert back_and_forth(value) == value


def test_exceptions_come_back_whatever_their_constructor_takes() -> None:
    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a + b)
            self.a = a

    found = back_and_forth([Odd(1, 2)])[0]
    assert (type(found), found.args, found.a) == (Odd, (3,), 1)


# --- what cannot be pickled -----------------------------------------------------------------------


def uses_global() -> Any:
    return lock


class HasMember:
    def __init__(self) -> None:
        self.inner = {"list": [1, lock]}


def names(value: object) -> str:
    with pytest.raises(TypeError) as caught:
        _serialization.dumps(value)
    return str(caught.value)


def test_the_member_is_named() -> None:
    inside = threading.Lock()

    def uses_closure() -> Any:
        return inside

    def uses_default(x: Any = inside) -> Any:
        return x

    def calls() -> Any:
        return uses_closure()

    assert "'inside'" in names(uses_closure)
    assert "default of argument 0" in names(uses_default)
    assert "'uses_closure' → the closure variable 'inside'" in names(calls)
    assert "[1]" in names([1, lock])
    assert "['key']" in names({"key": lock})
    text = names(HasMember())
    assert "HasMember.inner" in text
    assert "['list']" in text
    assert "_thread.lock" in text
    assert "'lock'" in names(uses_global)
    assert "_thread.lock" in names(lock)


def test_all_members_are_named() -> None:
    found = list(_serialization.culprits({"a": lock, "b": [lock, threading.Condition()]}, every=True))
    assert len(found) >= 2


def test_values_that_are_nested_too_deeply() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    try:
        assert "deeply" in names(deep)
    finally:
        while deep:  # else its own end would be too deep
            deep = deep.pop()


def test_functions_that_are_too_large_are_named(no_session: None) -> None:
    content = bytes(_serialization.EXPORT_BYTES_MAX + 1)

    def enormous() -> int:
        return len(content)

    with pytest.raises(ValueError, match=r"'enormous'.*95 MiB"):
        _serialization.dump_export(enormous, "function", "enormous")


# --- custom serialisers ---------------------------------------------------------------------------


class Resource:
    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()


def test_custom_serialisers() -> None:
    _serialization.register_serializer(
        Resource, serializer=lambda value: value.name.upper(), deserializer=lambda name: Resource(name + "!")
    )
    try:
        assert back_and_forth([Resource("a")])[0].name == "A!"
    finally:
        _serialization.deregister_serializer(Resource)
    assert "Resource.lock" in names(Resource("a"))
    _serialization.deregister_serializer(Resource)
    with pytest.raises(TypeError):
        _serialization.register_serializer(3, serializer=repr, deserializer=repr)  # type: ignore[arg-type]


# --- what is remote can be sent -------------------------------------------------------------------


def test_remote_functions_travel(no_session: None) -> None:
    @aktis.remote(num_cpus=2, max_retries=1)
    def function(x: int) -> int:
        return x

    again = back_and_forth({"f": function})["f"]
    assert again._options == function._options
    assert again.__wrapped__(3) == 3
    assert again.__name__ == "function"


def test_a_function_that_calls_itself_travels(no_session: None) -> None:
    @aktis.remote
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * aktis.get(factorial.remote(n - 1))

    again = back_and_forth(factorial)
    assert again.__wrapped__(1) == 1
    assert again.__name__ == "factorial"


def test_actor_classes_travel(no_session: None) -> None:
    @aktis.remote(max_restarts=2)
    class Counter:
        start = 3

        def add(self) -> int:
            return self.start + 1

    again = back_and_forth(Counter)
    assert again._options == {"max_restarts": 2}
    assert again.__wrapped__().add() == 4
    assert again.start == 3


def test_ids() -> None:
    task = TaskID(b"\1" * 16)
    assert TaskID.from_hex(task.hex()) == task == pickle.loads(pickle.dumps(task))
    assert task != NodeID(b"\1" * 16)
    assert len({task, TaskID(b"\1" * 16), ActorID(b"\1" * 16)}) == 2
    assert TaskID.nil().is_nil()
    assert not task.is_nil()
    assert repr(task) == f"TaskID({'01' * 16})"
    assert JobID.from_int(7).int() == 7
    with pytest.raises(TypeError):
        TaskID("text")  # type: ignore[arg-type]
