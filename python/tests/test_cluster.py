"""Clusters: several nodes, each a process with workers of its own, and drivers that attach to one of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import aktis
from aktis import _cli, _nodes
from aktis.cluster_utils import Cluster
from support import Latch, wait_until

SECONDS = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, and a node that has two: whatever runs, runs elsewhere."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster:
        cluster.add_node(num_cpus=2, resources={"licence": 1}, labels={"zone": "b"})
        yield cluster


@pytest.fixture
def driver(cluster: Cluster, no_session: None) -> Any:
    """This process as a driver on the head's node."""
    return aktis.init(cluster.address)


@aktis.remote
def add(a: Any, b: Any = 1) -> Any:
    return a + b


@aktis.remote
def where() -> str:
    return aktis.get_runtime_context().get_node_id()


def test_tasks_run_on_the_other_node(cluster: Cluster, driver: Any) -> None:
    refs = [add.remote(number, b=2) for number in range(200)]
    assert aktis.get(refs, timeout=SECONDS) == [number + 2 for number in range(200)]
    (other,) = cluster.worker_nodes
    assert aktis.get(where.remote(), timeout=SECONDS) == other.node_id
    assert aktis.get_runtime_context().get_node_id() != other.node_id


@pytest.mark.parametrize("force", [False, True])
def test_the_driver_cancels_what_a_task_on_another_node_submitted(
    driver: Any, latch: Latch, force: bool
) -> None:
    @aktis.remote(num_cpus=0, max_retries=0)
    def sleeps() -> None:
        latch.arrive()
        while True:
            time.sleep(0.02)

    @aktis.remote
    def submits() -> list[Any]:
        return [sleeps.remote()]

    (ref,) = aktis.get(submits.remote(), timeout=SECONDS)
    latch.wait_for_arrivals(1)
    aktis.cancel(ref, force=force)
    with pytest.raises(aktis.exceptions.TaskCancelledError):
        aktis.get(ref, timeout=SECONDS)


def test_a_job_has_one_id_everywhere(driver: Any) -> None:
    @aktis.remote
    def job() -> str:
        return aktis.get_runtime_context().get_job_id()

    assert aktis.get(job.remote(), timeout=SECONDS) == aktis.get_runtime_context().get_job_id()


def test_arrays_cross_both_ways(driver: Any) -> None:
    numbers = numpy.arange(1 << 20)
    result = aktis.get(add.remote(aktis.put(numbers)), timeout=SECONDS)
    assert (result == numbers + 1).all()
    assert not result.flags.writeable
    assert aktis.get(add.remote(add.remote(numbers)), timeout=SECONDS)[-1] == (1 << 20) + 1


def test_an_actor_lives_there_and_takes_calls_in_order(driver: Any) -> None:
    @aktis.remote(num_cpus=1)
    class Counter:
        def __init__(self, start: int) -> None:
            self.total = start

        def add(self, number: int) -> int:
            self.total += number
            return self.total

    counter = Counter.remote(10)
    totals = [counter.add.remote(1) for _ in range(50)]
    assert aktis.get(totals, timeout=SECONDS) == list(range(11, 61))
    aktis.kill(counter)


def test_generators_give_their_items_across(driver: Any) -> None:
    @aktis.remote
    def count(to: int) -> Iterator[int]:
        yield from range(to)

    assert [aktis.get(item, timeout=SECONDS) for item in count.remote(20)] == list(range(20))


def test_references_nested_tasks_and_failures_cross(driver: Any) -> None:
    @aktis.remote
    def total(refs: list[Any]) -> int:
        return sum(aktis.get(refs)) + aktis.get(add.remote(0, 1))

    @aktis.remote
    def fails() -> None:
        raise KeyError("nothing there")

    refs = [aktis.put(1), add.remote(1)]
    assert aktis.get(total.remote(refs), timeout=SECONDS) == 4
    with pytest.raises(KeyError, match="nothing there"):
        aktis.get(fails.remote(), timeout=SECONDS)


def test_the_nodes_are_known(cluster: Cluster, driver: Any) -> None:
    assert aktis.cluster_resources()["CPU"] == 2
    assert aktis.cluster_resources()["licence"] == 1
    listed = {node["NodeID"]: node for node in aktis.nodes()}
    assert set(listed) == {node.node_id for node in cluster.list_all_nodes()}
    (other,) = cluster.worker_nodes
    assert listed[other.node_id]["Labels"]["zone"] == "b"


def test_shutdown_leaves_the_node_and_a_driver_can_come_again(cluster: Cluster, driver: Any) -> None:
    before = aktis.put(1)
    assert aktis.get(add.remote(before), timeout=SECONDS) == 2
    aktis.shutdown()
    assert not aktis.is_initialized()
    aktis.init(os.path.join(cluster.address, "node"))
    assert aktis.get(add.remote(2), timeout=SECONDS) == 3


def test_the_options_of_a_node_and_an_address_exclude_each_other(cluster: Cluster, no_session: None) -> None:
    with pytest.raises(ValueError, match=r"num_cpus, resources cannot be chosen.*\nhint: "):
        aktis.init(cluster.address, num_cpus=1, resources={"x": 1})
    assert not aktis.is_initialized()


def test_addresses(cluster: Cluster, no_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.head_node is not None
    monkeypatch.setenv("AKTIS_DIRECTORY", cluster.address)
    for address in ("auto", cluster.head_node.cluster_address()):
        monkeypatch.setenv("AKTIS_ADDRESS", address)
        assert aktis.init()["address"] == address
        aktis.shutdown()
    monkeypatch.setenv("AKTIS_DIRECTORY", "/nowhere/at/all")
    with pytest.raises(ConnectionError, match="no node runs on this machine"):
        aktis.init("auto")


def test_the_command(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "aktis._cli"]
    shown = subprocess.run(
        [*command, "--directory", cluster.address, "list", "nodes"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(shown.stdout.strip().splitlines()) >= 3
    wrong = subprocess.run([*command, "begin"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "begin" in wrong.stderr


def test_ctrl_c_ends_a_command_that_goes_on(cluster: Cluster, driver: Any) -> None:
    @aktis.remote
    def say() -> None:
        print("words")

    aktis.get(say.remote(), timeout=SECONDS)
    # As a terminal starts it: whoever runs the tests may ignore the signal.
    before = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [*_cli.command(before), "--directory", cluster.address, "logs", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == -signal.SIGINT
        finally:
            process.kill()


def test_nodes_come_and_go(no_session: None) -> None:
    with Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 1}) as cluster:
        node = cluster.add_node(num_cpus=3)
        assert aktis.cluster_resources()["CPU"] == 4
        cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: aktis.cluster_resources()["CPU"] == 1)
        # It is silent first, and then no member any more: it is told of all the same.
        wait_until(lambda: len(_nodes.cluster_rows() or []) == 1)
        wait_until(lambda: [each["Alive"] for each in aktis.nodes()] == [True, False])
        assert aktis.nodes()[1]["NodeID"] == node.node_id
        assert aktis.get(add.remote(1), timeout=SECONDS) == 2
    assert not aktis.is_initialized()
