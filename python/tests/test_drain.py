"""`aktis drain`: a node leaves under load, and nothing is lost by that."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import aktis
from aktis import _cli
from aktis.cluster_utils import Cluster, ClusterNode
from aktis.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from support import wait_until

SECONDS = 40
LARGE = 200_000


@pytest.fixture
def cluster(no_session: None) -> Iterator[Cluster]:
    """A head without CPUs, on which the driver is."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster:
        yield cluster
        aktis.shutdown()


def run(cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command on the head's machine."""
    head = cluster.head_node
    assert head is not None
    command = [*_cli.command(), "--directory", head.directory, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=False)


def node_states(cluster: Cluster) -> dict[str, str]:
    rows = json.loads(run(cluster, "list", "nodes", "--json").stdout)["nodes"]
    return {row["id"]: row["state"] for row in rows}


def add_node(cluster: Cluster) -> ClusterNode:
    return cluster.add_node(num_cpus=2, resources={"place": 100})


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=SECONDS)


def test_a_node_that_is_drained_under_load_loses_nothing(cluster: Cluster) -> None:
    first, second = add_node(cluster), add_node(cluster)
    aktis.init(cluster.address)

    # Without retries: what is lost fails.
    @aktis.remote(max_retries=0, num_cpus=1)
    def works(number: int) -> int:
        time.sleep(0.01)
        return number

    @aktis.remote(max_restarts=1, num_cpus=0, resources={"place": 1})
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> tuple[int, str]:
            time.sleep(0.002)
            self.count += 1
            return self.count, aktis.get_runtime_context().get_node_id()

    @aktis.remote(max_retries=0, num_cpus=0, resources={"place": 1})
    def makes(number: int) -> Any:
        return [aktis.put(numpy.full(LARGE, number)), aktis.put(number)]

    at = [NodeAffinitySchedulingStrategy(node.node_id, soft=True) for node in (first, second)]
    counters = [Counter.options(scheduling_strategy=strategy).remote() for strategy in at]
    assert [get(counter.add.remote())[1] for counter in counters] == [first.node_id, second.node_id]
    values = [get(makes.options(scheduling_strategy=strategy).remote(n)) for n, strategy in enumerate(at)]

    answers: list[tuple[int, str]] = []
    errors: list[BaseException] = []
    ends = threading.Event()

    def calls() -> None:
        try:
            while not ends.is_set():
                answers.extend(get([counters[0].add.remote() for _ in range(8)]))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=calls)
    thread.start()
    refs = [works.remote(number) for number in range(600)]
    wait_until(lambda: len(answers) > 0 or bool(errors))
    drained = run(cluster, "drain", first.node_id, "--json")
    assert drained.returncode == 0, drained.stderr
    assert json.loads(drained.stdout)["node"] == first.node_id
    assert node_states(cluster).get(first.node_id) == "dead"
    before = len(answers)
    wait_until(lambda: len(answers) > before + 16 or bool(errors))
    ends.set()
    thread.join()
    assert not errors
    # Each call counted once in one of its two lives, and no answer was skipped.
    lives = [[count for count, at in answers if at == node.node_id] for node in (first, second)]
    assert lives[0] == list(range(2, 2 + len(lives[0])))
    assert lives[1] == list(range(1, 1 + len(lives[1]))) and lives[1]
    assert get(refs) == list(range(600))
    for number, (large, small) in enumerate(values):
        assert (get(large) == number).all() and get(small) == number


def test_what_cannot_move_is_lost_at_the_deadline_and_that_is_said(cluster: Cluster) -> None:
    first = add_node(cluster)
    aktis.init(cluster.address)

    @aktis.remote(num_cpus=0, resources={"place": 1})
    class Stays:
        def where(self) -> int:
            return os.getpid()

    actor = Stays.remote()
    get(actor.where.remote())
    add_node(cluster)
    drained = run(cluster, "drain", first.node_id, "--deadline", "5s")
    assert drained.returncode == 1
    assert "1 actor that cannot move" in drained.stderr
    with pytest.raises(aktis.exceptions.ActorDiedError):
        get(actor.where.remote())


def test_the_head_and_unknown_nodes_are_not_drained(cluster: Cluster) -> None:
    head = cluster.head_node
    assert head is not None
    for digits, reason in [(head.node_id, "cannot be drained"), ("ffffffff", "no node has an id")]:
        refused = run(cluster, "drain", digits)
        assert refused.returncode == 1
        assert reason in refused.stderr


def test_a_node_that_dies_while_it_is_drained_is_reported_as_lost(cluster: Cluster) -> None:
    node = add_node(cluster)
    aktis.init(cluster.address)

    away = node.node_id

    @aktis.remote(num_cpus=0, resources={"place": 1})
    def stays(lasts: bool) -> str:
        here = aktis.get_runtime_context().get_node_id()
        if lasts and here == away:
            time.sleep(3 * SECONDS)
        return here

    there = NodeAffinitySchedulingStrategy(away, soft=True)
    first = stays.options(scheduling_strategy=there).remote(False)
    assert get(first) == away
    lasting = stays.options(scheduling_strategy=there).remote(True)
    other = add_node(cluster)
    head = cluster.head_node
    assert head is not None
    command = [*_cli.command(), "--directory", head.directory, "drain", node.node_id]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as drained:
        wait_until(lambda: node_states(cluster).get(node.node_id) == "draining")
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGKILL)
        _, errors = drained.communicate(timeout=SECONDS)
    assert drained.returncode == 1, errors
    assert "is gone: its lease has lapsed" in errors
    assert get(lasting) == other.node_id


CREATES = """
import sys
import aktis
aktis.init(sys.argv[1], namespace="drain")
@aktis.remote(max_restarts=1, num_cpus=0, resources={"place": 1})
class Named:
    def where(self):
        return aktis.get_runtime_context().get_node_id()
actor = Named.options(name="named", lifetime="detached").remote()
print(aktis.get(actor.where.remote()))
"""


def test_a_detached_actor_in_the_care_of_a_drained_node_lives_on_under_its_name(cluster: Cluster) -> None:
    first = add_node(cluster)
    created = subprocess.run(
        [sys.executable, "-c", CREATES, first.address],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert created.stdout.split()[-1] == first.node_id
    second = add_node(cluster)
    drained = run(cluster, "drain", first.node_id)
    assert drained.returncode == 0, drained.stderr
    aktis.init(cluster.address, namespace="drain")
    assert get(aktis.get_actor("named").where.remote()) == second.node_id


def test_streams_nested_tasks_and_overlapping_calls_go_on_while_their_node_is_drained(
    cluster: Cluster,
) -> None:
    first = add_node(cluster)
    aktis.init(cluster.address)
    there = NodeAffinitySchedulingStrategy(first.node_id, soft=True)

    @aktis.remote(max_restarts=1, num_cpus=0, resources={"place": 1}, max_concurrency=4)
    class Gate:
        def __init__(self) -> None:
            self.opened = asyncio.Event()
            self.waiting = 0

        async def passes(self) -> str:
            self.waiting += 1
            await self.opened.wait()
            return aktis.get_runtime_context().get_node_id()

        async def count(self) -> int:
            return self.waiting

        async def opens(self) -> str:
            self.opened.set()
            return aktis.get_runtime_context().get_node_id()

    @aktis.remote(num_cpus=1, max_retries=0)
    def streams(count: int) -> Iterator[int]:
        for number in range(count):
            time.sleep(0.05)
            yield number

    @aktis.remote(num_cpus=1, max_retries=0)
    def works(number: int) -> int:
        time.sleep(0.1)
        return number

    @aktis.remote(num_cpus=0, resources={"place": 1}, max_retries=0)
    def nests() -> Any:
        return [works.remote(number) for number in range(20)]

    gate = Gate.options(scheduling_strategy=there).remote()
    passing = gate.passes.remote()
    wait_until(lambda: get(gate.count.remote()) == 1)
    items = streams.options(scheduling_strategy=there).remote(30)
    inner = get(nests.options(scheduling_strategy=there).remote())
    second = add_node(cluster)
    head = cluster.head_node
    assert head is not None
    command = [*_cli.command(), "--directory", head.directory, "drain", first.node_id]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as drained:
        wait_until(lambda: node_states(cluster).get(first.node_id) == "draining")
        # A call may wait for a later one: the actor stays until it has no call.
        assert get([gate.opens.remote(), passing]) == [first.node_id] * 2
        assert [get(item) for item in items] == list(range(30))
        _, errors = drained.communicate(timeout=SECONDS)
    assert drained.returncode == 0, errors
    assert get(inner) == list(range(20))
    assert get(gate.opens.remote()) == second.node_id
