"""What is left of nodes and drivers of a cluster that died: nothing (behaviour 30)."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import aktis
from aktis import exceptions
from aktis.cluster_utils import Cluster
from aktis.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from support import Latch, children_of, is_alive, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, and another node with two."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster:
        cluster.add_node(num_cpus=2)
        yield cluster


@aktis.remote(max_restarts=-1)
class Parent:
    """A worker with a child."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(["sleep", "1000"])

    def pids(self) -> list[int]:
        return [os.getpid(), self.child.pid]


def are_gone(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


def test_nothing_is_left_of_a_killed_driver(cluster: Cluster, no_session: None, run_script: Any) -> None:
    killed = run_script(
        f"""
        import json, os, signal, subprocess, time
        import aktis

        aktis.init({cluster.address!r})

        @aktis.remote
        class Parent:
            def __init__(self):
                self.child = subprocess.Popen(["sleep", "1000"])

            def pids(self):
                return [os.getpid(), self.child.pid]

        @aktis.remote
        def linger():
            time.sleep(1000)

        parent = Parent.remote()
        pids = aktis.get(parent.pids.remote())
        tasks = [linger.remote() for _ in range(4)]
        print(json.dumps(pids), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """,
        check=False,
    )
    pids = json.loads(killed.stdout)
    wait_until(lambda: are_gone(pids), what="the workers of the driver to end")
    aktis.init(cluster.address)
    wait_until(lambda: aktis.available_resources().get("CPU") == 2, what="the CPUs to be free again")


@aktis.remote(num_cpus=1)
class Shared:
    """An actor with several callers."""

    def pid(self) -> int:
        return os.getpid()

    def wait(self, latch: Latch) -> None:
        latch.wait()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "aktis.shutdown()"])
def test_an_actor_outlives_a_caller(
    cluster: Cluster, no_session: None, run_script: Any, latch: Latch, end: str
) -> None:
    aktis.init(cluster.address, namespace="shared")
    shared = Shared.options(name="shared").remote()
    pid = aktis.get(shared.pid.remote(), timeout=30)
    called = run_script(
        f"""
        import os, signal, sys
        import aktis
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from support import Latch

        latch = Latch({str(latch.folder)!r})
        aktis.init({cluster.address!r}, namespace="shared")
        shared = aktis.get_actor("shared")
        waiting = shared.wait.remote(latch)
        latch.wait_for_arrivals(1)
        {end}
    """,
        check=False,
    )
    assert latch.arrivals() == [pid], called.stderr
    latch.open()
    assert aktis.get(shared.pid.remote(), timeout=30) == pid
    aktis.kill(shared)


def test_nothing_is_left_of_a_killed_node(cluster: Cluster, no_session: None) -> None:
    aktis.init(cluster.address)
    node = cluster.add_node(num_cpus=1)
    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    parent = Parent.options(num_cpus=1, scheduling_strategy=there).remote()
    pids = aktis.get(parent.pids.remote(), timeout=30)
    assert node.process is not None
    pids.append(node.process.pid)
    cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: are_gone(pids), what="all processes of the node to end")


def test_a_driver_that_loses_its_node_does_not_go_on_by_itself(cluster: Cluster, no_session: None) -> None:
    node = cluster.add_node(num_cpus=1)
    aktis.init(node.address)
    parent = Parent.remote()
    cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: not aktis.is_initialized(), what="the loss of the node to be noticed")
    for call in (lambda: aktis.put(1), Parent.remote, aktis.nodes, lambda: aktis.get_actor("nobody")):
        with pytest.raises(exceptions.SessionClosedError, match="has ended"):
            call()
    with pytest.raises(exceptions.SessionClosedError):
        aktis.get(parent.pids.remote())
    aktis.init(cluster.address)
    assert aktis.get(aktis.put(1)) == 1
    aktis.shutdown()


def test_programs_take_a_session_of_their_own_after_a_shutdown(cluster: Cluster, no_session: None) -> None:
    node = cluster.add_node(num_cpus=1)
    aktis.init(node.address)
    cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: not aktis.is_initialized(), what="the loss of the node to be noticed")
    aktis.shutdown()
    assert aktis.get(aktis.put(1)) == 1
    assert aktis.is_initialized()


def test_nothing_runs_on_a_node_for_a_driver_that_has_nothing_to_do_there(
    cluster: Cluster, no_session: None
) -> None:
    """What workers are forked from ends too, and begins again with the next task."""
    node = cluster.add_node(num_cpus=1, resources={"there": 1})
    assert node.process is not None
    daemon = node.process.pid

    @aktis.remote(resources={"there": 1})
    def pid() -> int:
        return os.getpid()

    aktis.init(cluster.address)
    for _ in range(2):
        assert aktis.get(pid.remote(), timeout=30) in children_of(daemon)
        wait_until(lambda: not children_of(daemon), what="the processes of the program to end")
    cluster.remove_node(node)
