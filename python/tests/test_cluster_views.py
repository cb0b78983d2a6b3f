"""What a driver sees of a cluster: rows of all its nodes, and what workers print there."""

import os
import time
from typing import Any

import aktis
from aktis.cluster_utils import Cluster
from aktis.util import debug
from aktis.util.state import (
    get_actor,
    list_actors,
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
        assert debug.available_resources_per_node()[node.node_id]["CPU"] <= 2
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
