"""What the closures of functions and classes refer to: references and handles of actors."""

import gc
from typing import Any

import pytest

import aktis
from aktis.util import state
from support import Latch, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")


@aktis.remote
class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value


def test_a_handle_in_a_closure() -> None:
    counter = Counter.remote()

    @aktis.remote
    def adds() -> int:
        return aktis.get(counter.add.remote())

    assert sorted(aktis.get([adds.remote() for _ in range(3)])) == [1, 2, 3]
    assert aktis.get(counter.add.remote()) == 4


def test_a_handle_in_a_method_of_a_class() -> None:
    counter = Counter.remote()

    class Adder:
        def add(self) -> int:
            return aktis.get(counter.add.remote())

    adder = aktis.remote(Adder).remote()
    del Adder
    assert aktis.get([adder.add.remote() for _ in range(2)]) == [1, 2]


def test_references_in_closures() -> None:
    ref = aktis.put(bytes(300_000))

    @aktis.remote
    def reads() -> int:
        return len(aktis.get(ref))

    assert aktis.get(reads.remote()) == 300_000


def test_what_a_closure_holds_lives_as_long_as_its_calls(latch: Latch) -> None:
    def submits() -> tuple[Any, str]:
        ref = aktis.put(bytes(300_000))

        @aktis.remote(max_calls=1)
        def reads(latch: Latch) -> int:
            latch.wait()
            return len(aktis.get(ref))

        return reads.remote(latch), ref.hex()

    def is_stored(name: str) -> bool:
        return any(row.object_id == name for row in state.list_objects(limit=10_000))

    result, name = submits()
    gc.collect()
    latch.wait_for_arrivals(1)
    assert is_stored(name), "the task still needs it"
    latch.open()
    assert aktis.get(result) == 300_000
    # The worker ends with its one call; the function is gone, and the call does not come again.
    del result
    wait_until(lambda: not is_stored(name), what="the value to be let go")


def test_an_actor_class_that_creates_its_like() -> None:
    """A class that refers to itself is unpickled before it has its methods."""

    @aktis.remote(num_cpus=0, concurrency_groups={"io": 1})
    class Node:
        def __init__(self, depth: int, step: int = 1) -> None:
            self.depth = depth + step
            self.child: Any = None

        def grow(self, levels: int) -> int:
            if not levels:
                return self.depth
            self.child = Node.options(num_cpus=0).remote(self.depth)
            return aktis.get(self.child.grow.remote(levels - 1))

        @aktis.method(concurrency_group="io")
        def ready(self) -> bool:
            return self.child is None

    assert aktis.get(Node.remote(0).grow.remote(2), timeout=30) == 3


def test_a_function_with_defaults_that_submits_itself() -> None:
    @aktis.remote(num_cpus=0.1)
    def count(levels: int, depth: int = 0, *, step: int = 1) -> int:
        return depth if not levels else aktis.get(count.remote(levels - 1, depth + step))

    assert aktis.get(count.remote(2), timeout=30) == 2


def test_the_phrases_for_what_is_too_large(shared_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from aktis import _serialization

    monkeypatch.setattr(_serialization, "EXPORT_BYTES_MAX", 1000)
    large = bytes(2000)

    @aktis.remote
    def function() -> int:
        return len(large)

    @aktis.remote
    class Actor:
        def call(self) -> int:
            return len(large)

    with pytest.raises(ValueError, match=rf"The remote function {__name__}.function is too large"):
        function.remote()
    with pytest.raises(ValueError, match="The actor Actor is too large"):
        Actor.remote()
