"""What a driver sees of a cluster: rows of all its nodes, and what workers print there."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

import aktis
from aktis.cluster_utils import Cluster
from aktis.exceptions import LimitExceededError
from aktis.experimental import get_local_object_locations, get_object_locations
from aktis.util import debug
from aktis.util._runtime import runtime
from aktis.util.state import (
    get_actor,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_tasks,
    list_workers,
    summarize_tasks,
)
from support import wait_until


@aktis.remote
class Counter:
    def pid(self) -> int:
        return os.getpid()


@aktis.remote
def linger(path: str) -> int:
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()


@aktis.remote
def large() -> bytes:
    return b"x" * (1 << 20)


def test_rows_tell_of_all_nodes(no_session: Any, tmp_path: Any) -> None:
    with Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 0}) as cluster:
        node = cluster.add_node(num_cpus=3)
        counter = Counter.options(name="the counter", num_cpus=1).remote()
        pid = aktis.get(counter.pid.remote(), timeout=30)
        actors = [row for row in list_actors() if row.class_name == "Counter"]
        assert [(row.pid, row.node_id, row.name) for row in actors] == [(pid, node.node_id, "the counter")]
        found = get_actor(actors[0].actor_id)
        assert found is not None and found.state == "ALIVE"
        assert pid in {row.pid for row in list_workers() if row.node_id == node.node_id}

        gate = str(tmp_path / "gate")
        waiting = linger.remote(gate)
        running: list[Any] = []

        def runs() -> bool:
            running[:] = [row for row in list_tasks() if row.name == "linger" and row.worker_pid]
            return bool(running)

        wait_until(runs)
        assert len(running) == 1 and running[0].node_id == node.node_id
        assert "linger" in summarize_tasks()["cluster"]["summary"]
        assert "is running in worker process" in aktis.explain(waiting)
        open(gate, "w").close()
        assert aktis.get(waiting, timeout=30) == running[0].worker_pid

        made = large.remote()
        aktis.wait([made], timeout=30, fetch_local=False)
        stored = {row.object_id: row.node_id for row in list_objects()}
        assert node.node_id in stored.values()

        nodes = {row.node_id: row for row in list_nodes()}
        assert set(nodes) == {node.node_id, cluster.head_node.node_id if cluster.head_node else ""}
        assert nodes[node.node_id].resources_total["CPU"] == 3
        assert debug.available_resources_per_node()[node.node_id].get("CPU", 0) <= 2
        assert debug.store_stats()["capacity_bytes"] == 2 * (256 << 20)
        assert made.hex() in debug.memory_summary()


PRINTS = """
import aktis
from aktis.cluster_utils import Cluster

@aktis.remote
def say(words):
    print(words)

@aktis.remote
def shout(number):
    print("the same words")

with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster:
    cluster.add_node(num_cpus=2)
    aktis.init(cluster.address, log_to_driver=LOG)
    aktis.get(say.remote("words from afar"))
    aktis.get([shout.remote(number) for number in range(10)])
    aktis.shutdown()
"""


def test_what_workers_of_other_nodes_print_is_printed_here(run_script: Any) -> None:
    printed = run_script(PRINTS.replace("LOG", "True")).stdout
    [line] = [line for line in printed.splitlines() if "words from afar" in line]
    assert line.startswith("(say pid=") and ", node=" in line
    assert "the same words" in printed


def test_output_can_be_left_to_the_nodes(run_script: Any) -> None:
    printed = run_script(PRINTS.replace("LOG", "False")).stdout
    assert "words from afar" not in printed


@aktis.remote
def look() -> dict[str, Any]:
    """What a task is told about its cluster."""
    context = aktis.get_runtime_context()
    return {
        "node": context.get_node_id(),
        "labels": context.get_node_labels(),
        "head": context.gcs_address,
        "nodes": {row.node_id for row in list_nodes()},
        "workers": {row.pid for row in list_workers()},
        "jobs": debug.jobs(),
        "resources": aktis.cluster_resources(),
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, and another node with two."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "labels": {"zone": "a"}}) as cluster:
        cluster.add_node(num_cpus=2, labels={"zone": "b"})
        yield cluster


def test_workers_are_told_what_drivers_are(cluster: Cluster, no_session: Any) -> None:
    told = aktis.init(cluster.address)
    head, other = cluster.list_all_nodes()
    seen = aktis.get(look.remote(), timeout=30)
    assert seen["node"] == other.node_id
    assert seen["labels"].pop("ray.io/node-id")
    assert seen["labels"] == {"zone": "b"}
    assert aktis.get_runtime_context().get_node_labels() == {"zone": "a", "ray.io/node-id": head.node_id}
    assert seen["head"] == aktis.get_runtime_context().gcs_address == head.cluster_address()
    assert (told["gcs_address"], told["node_ip_address"]) == (head.cluster_address(), "127.0.0.1")
    assert seen["nodes"] == {head.node_id, other.node_id}
    assert seen["workers"] >= {row.pid for row in list_workers() if row.state == "BUSY"}
    assert seen["resources"] == aktis.cluster_resources()
    assert seen["jobs"] == debug.jobs()


def test_a_session_tells_of_all_nodes(cluster: Cluster, no_session: Any) -> None:
    with aktis.Session(cluster.address) as session:
        assert session.cluster_resources()["CPU"] == 2
        wait_until(lambda: session.available_resources().get("CPU") == 2, what="all CPUs to be free")


def test_jobs_are_those_of_the_cluster(cluster: Cluster, no_session: Any, run_script: Any) -> None:
    aktis.init(cluster.address)
    own = aktis.get_runtime_context().get_job_id()
    ended = run_script(f"""
        import aktis
        aktis.init({cluster.address!r})
        print(aktis.get_runtime_context().get_job_id())
    """).stdout.strip()
    killed = run_script(
        f"""
        import os, signal, aktis
        aktis.init({cluster.address!r})
        print(aktis.get_runtime_context().get_job_id(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """,
        check=False,
    ).stdout.strip()

    def alive() -> dict[str, bool]:
        return {job["JobID"]: not job["IsDead"] for job in debug.jobs()}

    wait_until(lambda: not alive()[killed], what="the death of the driver to be known")
    found = alive()
    assert (found[own], found[ended], found[killed]) == (True, False, False)
    assert {job.job_id: job.status for job in list_jobs()}[ended] == "SUCCEEDED"
    assert [job["DriverPid"] for job in debug.jobs() if job["JobID"] == own] == [os.getpid()]
    aktis.shutdown()
    aktis.init(cluster.address)
    found = alive()
    assert not found[own]
    assert found[aktis.get_runtime_context().get_job_id()]


def test_a_value_is_fetched_when_it_is_waited_for(cluster: Cluster, no_session: Any) -> None:
    aktis.init(cluster.address)
    head, other = cluster.list_all_nodes()
    made = large.remote()
    assert aktis.wait([made], timeout=30, fetch_local=False)[0] == [made]
    assert not debug.object_exists(made)
    assert get_object_locations([made])[made]["node_ids"] == [other.node_id]
    assert get_local_object_locations([made])[made]["node_ids"] == []
    assert aktis.wait([made], timeout=30)[0] == [made]
    wait_until(lambda: debug.object_exists(made), what="the value to come")
    assert set(get_object_locations([made])[made]["node_ids"]) == {head.node_id, other.node_id}
    assert get_local_object_locations([made])[made]["node_ids"] == [head.node_id]
    assert len(aktis.get(made)) == 1 << 20


def test_keys_of_the_library_are_not_in_the_room_of_users(cluster: Cluster, no_session: Any) -> None:
    aktis.init(cluster.address)
    debug.kv_put("own", "1", namespace="aktis.jobs")
    listed = runtime().key_list(b"aktis/")
    assert any(key.startswith(b"aktis/10/aktis.jobs/") for key in listed)
    assert runtime().key_list(b"user/10/aktis.jobs/") == [b"user/10/aktis.jobs/own"], "another namespace"
    assert debug.kv_del("own", namespace="aktis.jobs") == 1


def test_a_program_attaches_though_its_job_cannot_be_noted(
    cluster: Cluster, no_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(*_: Any, **__: Any) -> bool:
        raise LimitExceededError("there is no room")

    monkeypatch.setattr(debug, "kv_put", put)
    with pytest.warns(UserWarning, match="this job is not listed: there is no room"):
        aktis.init(cluster.address)
    assert aktis.is_initialized()
