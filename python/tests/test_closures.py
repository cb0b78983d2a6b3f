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
