"""Cluster: its head, and what it refuses; `test_cluster.py` has several nodes."""

import os
import shutil
from typing import Any

import pytest

import aktis
from aktis.cluster_utils import Cluster
from aktis.util import debug
from aktis.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from support import is_alive, wait_until


def test_connect_to_the_head(no_session: Any) -> None:
    cluster = Cluster(
        initialize_head=True, connect=True, head_node_args={"num_cpus": 3, "resources": {"x": 2}}
    )
    assert cluster.connected
    assert aktis.cluster_resources()["CPU"] == 3
    assert aktis.cluster_resources()["x"] == 2
    cluster.wait_for_nodes()
    assert cluster.list_all_nodes() == [cluster.head_node]
    assert cluster.head_node is not None
    assert cluster.head_node.node_id == aktis.get_runtime_context().get_node_id()
    cluster.shutdown()
    assert not aktis.is_initialized()
    cluster.shutdown()  # Twice does no harm.


def test_init_with_the_address(no_session: Any) -> None:
    with Cluster() as cluster:
        cluster.add_node(num_cpus=3)
        assert not aktis.is_initialized()
        aktis.init(address=cluster.address)
        assert aktis.cluster_resources()["CPU"] == 3
    assert not aktis.is_initialized()


def test_nodes_end_with_the_process_that_added_them(run_script: Any) -> None:
    done = run_script(
        """
        import os, signal
        from aktis.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        print(cluster.head_node.process.pid, cluster.head_node.directory, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """,
        check=False,
    )
    pid, directory = done.stdout.split()
    wait_until(lambda: not is_alive(int(pid)), what="the node to end")
    shutil.rmtree(os.path.dirname(directory))


def test_what_ray_has_and_aktis_needs_not(no_session: Any) -> None:
    with Cluster(
        initialize_head=True, head_node_args={"include_dashboard": False, "_system_config": {}}
    ) as cluster:
        assert len(cluster.list_all_nodes()) == 1


def test_bad_requests(no_session: Any) -> None:
    with pytest.raises(ValueError):
        Cluster(connect=True)
    with pytest.raises(ValueError):
        Cluster(head_node_args={"num_cpus": 1})
    with pytest.raises(TypeError, match="num_cpu"):
        Cluster(initialize_head=True, head_node_args={"num_cpu": 1})
    assert Cluster().address is None
    cluster, other = Cluster(), Cluster()
    node = cluster.add_node()
    with pytest.raises(ValueError, match="not a node"):
        other.remove_node(node)
    cluster.remove_node(node)
    assert cluster.list_all_nodes() == []


def test_what_is_said_of_the_nodes_holds(no_session: Any) -> None:
    settings = {"max_direct_call_object_size": 0}
    with Cluster(initialize_head=True, head_node_args={"_system_config": settings}) as cluster:
        node = cluster.add_node(env_vars={"OF_THE_NODE": "yes"})
        assert cluster.worker_nodes == [node]
        aktis.init(cluster.address)

        @aktis.remote
        def variable() -> str | None:
            return os.environ.get("OF_THE_NODE")

        there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        assert aktis.get(variable.options(scheduling_strategy=there).remote(), timeout=30) == "yes"
        assert debug.object_exists(aktis.put(b"small"))
