"""Tasks that want different things: any number of combinations in a row, a limited number at a time."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aktis

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
