"""An actor on the driver's node that tasks on another node call, without any fault."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aktis
from aktis.cluster_utils import Cluster

SECONDS = 40
#: Calls of each of two threads. One in a hundred failed when a release crossed a new handle.
CALLS = 400


@aktis.remote(num_cpus=0, resources={"head": 1})
class Counter:
    def see(self, number: int) -> int:
        return number


@aktis.remote(max_retries=0, num_cpus=0.25, resources={"there": 0.1})
def sees(counter: Any, number: int) -> int:
    return aktis.get(counter.see.remote(number))


@pytest.fixture
def cluster(no_session: None) -> Iterator[Cluster]:
    """The head has the actor and the driver, the other node the tasks. No program has run there before."""
    with Cluster(
        initialize_head=True, connect=True, head_node_args={"num_cpus": 0, "resources": {"head": 10}}
    ) as cluster:
        cluster.add_node(num_cpus=2, resources={"there": 100})
        yield cluster


def test_the_first_task_on_a_node_calls_an_actor_that_lives_already(cluster: Cluster) -> None:
    actor = Counter.remote()
    assert aktis.get(actor.see.remote(1), timeout=SECONDS) == 1
    assert aktis.get(sees.remote(actor, 2), timeout=SECONDS) == 2
    assert aktis.get(sees.remote(actor, 3), timeout=SECONDS) == 3


def test_a_handle_that_crosses_the_release_of_the_last_one_is_good(cluster: Cluster) -> None:
    actor = Counter.remote()

    def call(number: int) -> int:
        return sum(aktis.get(sees.remote(actor, number), timeout=SECONDS) == number for _ in range(CALLS))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(call, range(2))) == [CALLS, CALLS]
