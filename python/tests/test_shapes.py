"""Tasks that want different things: any number of combinations in a row, a limited number at a time."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aktis
from support import Latch, get, wait_until

pytestmark = pytest.mark.usefixtures("no_session")


def test_there_may_be_any_number_of_combinations_one_after_the_other() -> None:
    aktis.init(num_cpus=2, resources={"disk": 1})

    @aktis.remote
    def used() -> Any:
        return aktis.get_runtime_context().get_assigned_resources()["disk"]

    def use(numbers: range) -> list[float]:
        return [aktis.get(used.options(resources={"disk": number / 1000}).remote()) for number in numbers]

    with ThreadPoolExecutor(3) as pool:
        parts = [range(start, 600, 3) for start in (1, 2, 3)]
        found = list(pool.map(use, parts))
    assert found == [[number / 1000 for number in part] for part in parts]


def test_too_many_combinations_at_a_time_are_refused() -> None:
    aktis.init(num_cpus=1)

    @aktis.remote
    def wants() -> None:
        pass

    waiting = []
    with pytest.raises(aktis.exceptions.LimitExceededError, match="combinations of resources"):
        for number in range(300):
            waiting.append(wants.options(resources={f"resource {number}": 1}).remote())
    assert len(waiting) > 200
    for ref in waiting:
        aktis.cancel(ref)
    # The next one finds that there is nothing to do in all these.
    again = wants.options(resources={"another": 1}).remote()
    aktis.cancel(again)
    aktis.get(wants.options(num_cpus=0.5).remote(), timeout=20)


def test_what_fits_now_does_not_wait_for_what_does_not() -> None:
    """Nobody knows how long actors and tasks keep what others wait for; smaller ones go on meanwhile."""
    with aktis.Session(num_cpus=2, resources={"unit": 3}):

        @aktis.remote(num_cpus=0)
        class Holder:
            def get(self) -> int:
                return 1

        def holder(units: float) -> Any:
            return Holder.options(resources={"unit": units}).remote()

        held = holder(2.7)
        get(held.get.remote())
        waits = holder(0.7)
        wait_until(lambda: "free" in aktis.explain(waits), what="the second one to wait")
        small = holder(0.3)
        assert get(small.get.remote()) == 1

        @aktis.remote
        def long(latch: Latch) -> None:
            latch.wait()

        @aktis.remote(num_cpus=2)
        def wide() -> int:
            return 2

        @aktis.remote
        def one() -> int:
            return 1

        latch = Latch()
        running = long.remote(latch)
        latch.wait_for_arrivals(1)
        wide_one = wide.remote()
        assert get(one.remote()) == 1
        latch.open()
        assert get([running, wide_one]) == [None, 2]
