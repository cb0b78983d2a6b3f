"""Nodes and workers that die, leave, freeze and come, from a seed, under tasks whose results are all checked:
nothing is lost that may run again, and nothing is left in the stores."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy
import pytest

import aktis
from aktis.cluster_utils import Cluster, ClusterNode
from aktis.util import debug
from support import children_of, wait_until

SECONDS = 60
FAULTS = 8
RUNS_AGAIN = {"max_retries": -1, "num_cpus": 0.3}


@aktis.remote(**RUNS_AGAIN)
def fill(number: int, length: int) -> Any:
    return numpy.full(length, number)


@aktis.remote(**RUNS_AGAIN)
def add(array: Any, other: Any) -> Any:
    return array + other[0]


@aktis.remote(**RUNS_AGAIN)
def total(refs: list[Any]) -> int:
    return sum(int(aktis.get(ref)[0]) for ref in refs)


@aktis.remote(**RUNS_AGAIN)
def nested(number: int) -> int:
    """Submits tasks from another node, with the same needs as those that come from the driver."""
    totals = [total.remote([fill.remote(number, 3000), fill.remote(1, 10)]) for _ in range(3)]
    return sum(aktis.get(totals))


@aktis.remote(max_restarts=-1, max_task_retries=-1)
class Adder:
    def add(self, array: Any, refs: list[Any]) -> int:
        return int(array[0]) + int(aktis.get(refs[0])[0])


class Faults:
    """What happens to the nodes of a cluster but two: the head, where the driver is, and one that stays."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.random = cluster, random.Random(seed)
        self.stays = cluster.add_node(num_cpus=2)
        self.victims = [cluster.add_node(num_cpus=2) for _ in range(2)]
        self.done = 0

    def kill_worker(self) -> None:
        node = self.random.choice([*self.victims, self.stays])
        workers = [pid for child in children_of(node.process.pid) for pid in children_of(child)]
        if workers:
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(workers), signal.SIGKILL)

    def replace_node(self) -> None:
        node: ClusterNode = self.victims.pop(self.random.randrange(len(self.victims)))
        self.cluster.remove_node(node, allow_graceful=self.random.random() < 0.5)
        self.victims.append(self.cluster.add_node(num_cpus=2))

    def freeze_node(self) -> None:
        pid = self.random.choice(self.victims).process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.random.choice([0.3, 3]))  # The longer is beyond the lease of the node.
        os.kill(pid, signal.SIGCONT)

    def run(self) -> None:
        while self.done < FAULTS:
            time.sleep(self.random.uniform(0.1, 0.8))
            self.random.choice([self.kill_worker, self.kill_worker, self.replace_node, self.freeze_node])()
            self.done += 1

    @contextmanager
    def happening(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            thread.join()


def work(lengths: random.Random, adders: list[Any], five: Any) -> None:
    """Chains of large and small values, nested tasks, and calls of actors, all of them checked."""
    arrays = [fill.remote(number, lengths.choice([1, 5000, 200_000])) for number in range(10)]
    sums = [add.remote(array, fill.remote(100, 3000)) for array in arrays]
    ends = [add.remote(partial, array) for array, partial in zip(arrays, sums, strict=True)]
    inner = [nested.remote(number) for number in range(3)]
    calls = [adder.add.remote(arrays[number], [five]) for number, adder in enumerate(adders)]
    values = [int(end[-1]) for end in aktis.get(ends, timeout=SECONDS)]
    assert values == [2 * number + 100 for number in range(10)]
    assert aktis.get(inner, timeout=SECONDS) == [3 * (number + 1) for number in range(3)]
    assert aktis.get(calls, timeout=SECONDS) == [number + 5 for number in range(len(adders))]


@pytest.mark.parametrize("seed", [3, 4])
def test_nothing_is_lost_and_nothing_is_left(seed: int, no_session: None) -> None:
    with Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 0}) as cluster:
        faults = Faults(cluster, seed)
        adders = [Adder.remote() for _ in range(2)]
        five = aktis.put(numpy.full(3000, 5))
        lengths = random.Random(seed)
        with faults.happening():
            while faults.done < FAULTS:
                work(lengths, adders, five)
        work(lengths, adders, five)
        del adders, five
        wait_until(lambda: debug.store_stats()["used_bytes"] == 0, SECONDS, "the stores to be empty")
        wait_until(
            lambda: aktis.available_resources().get("CPU") == aktis.cluster_resources().get("CPU"),
            SECONDS,
            "all CPUs to be free",
        )
        aktis.shutdown()
