"""`Simulator` on two nodes: its actors are on both, with the results of one node, and a node may die."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aktis.cluster_utils import Cluster, ClusterNode
from aktis.simulate import Simulator
from aktis.util.state import list_actors
from support import Latch, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head with the driver; each test adds its other node."""
    with Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 2}) as cluster:
        yield cluster


@pytest.fixture
def other(cluster: Cluster) -> Iterator[ClusterNode]:
    node = cluster.add_node(num_cpus=2)
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)


def places() -> list[str]:
    """The nodes of the living actors."""
    return sorted(str(row.node_id) for row in list_actors() if row.state == "ALIVE")


def fragments(where: list[list[str]]) -> list[dict[str, Any]]:
    """A fragment of each of two actors, by number; adds to `where` the nodes of the actors."""
    with Simulator("CartPole-v1", num_actors=2, envs_per_actor=2, seed=3) as simulator:
        found = sorted(simulator.run(steps=50, count=2), key=lambda fragment: fragment["actor"])
        where.append(places())
    return found


def test_actors_are_on_both_nodes_and_change_nothing(cluster: Cluster, other: ClusterNode) -> None:
    assert cluster.head_node is not None
    head = cluster.head_node.node_id
    where: list[list[str]] = []
    spread = fragments(where)
    cluster.remove_node(other)
    alone = fragments(where)
    assert where == [sorted([head, other.node_id]), [head, head]]
    for one, same in zip(spread, alone, strict=True):
        for name in ("actor", "observations", "actions", "rewards", "episode_lengths"):
            np.testing.assert_array_equal(one[name], same[name])


def test_requests_of_a_node_that_dies_are_done_elsewhere(
    cluster: Cluster, other: ClusterNode, tmp_path: Path
) -> None:
    latch = Latch(tmp_path / "latch")

    def push(seen: Any) -> Any:
        latch.wait()
        return np.zeros(len(seen), int)

    with Simulator("CartPole-v1", num_actors=2, seed=3) as simulator:
        simulator.submit(push, steps=5, count=4)
        latch.wait_for_arrivals(2)
        assert other.process is not None
        os.kill(other.process.pid, signal.SIGKILL)
        latch.open()
        steps = [simulator.collect()["steps"] for _ in range(4)]
        assert cluster.head_node is not None
        heads = [cluster.head_node.node_id] * 2
        wait_until(lambda: places() == heads, what="an actor in the place of the one that died")
        [failure] = simulator.failures
    assert steps == [5] * 4
    assert failure.kind == "died" and failure.environment is None
