"""Training on two nodes: actors are on both, results are those of one node, and a node may die."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import aktis.rl
from aktis.cluster_utils import Cluster, ClusterNode
from aktis.util.state import list_actors
from support import wait_until

#: Environments are built in, so that workers need not import torch.
ENV = "CartPole-v1"
FIXED: dict[str, Any] = {"seed": 5, "target_return": None, "evaluation_interval": 0}
PPO: dict[str, Any] = {"num_envs": 4, "rollout_steps": 16, "minibatch_size": 32, "epochs": 1, "actors": 2}
ES: dict[str, Any] = {"pairs": 4, "hidden": (4,), "episodes_per_policy": 1, "actors": 2, "fan_in": 2}
IMPALA: dict[str, Any] = {"num_envs": 4, "rollout_steps": 16, "actors": 2}
ALGORITHMS = [(aktis.rl.PPO, PPO), (aktis.rl.ES, ES), (aktis.rl.IMPALA, IMPALA)]


def name_of(value: Any) -> str:
    return str(getattr(value, "name", ""))


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


def places() -> set[str]:
    """The nodes that have living actors."""
    return {str(row.node_id) for row in list_actors() if row.state == "ALIVE"}


def numbers(algorithm: Any) -> Any:
    return torch.nn.utils.parameters_to_vector(algorithm.policy.module.parameters()).detach().numpy()


@pytest.mark.parametrize(("kind", "settings"), ALGORITHMS[:2], ids=name_of)
def test_actors_are_on_both_nodes_and_change_nothing(
    cluster: Cluster, other: ClusterNode, kind: Any, settings: dict[str, Any]
) -> None:
    seen: list[set[str]] = []
    spread = kind(ENV, **settings, **FIXED, total_steps=512)
    spread.train(callback=lambda _: seen.append(places()))
    assert cluster.head_node is not None
    assert seen[0] == {cluster.head_node.node_id, other.node_id}
    cluster.remove_node(other)
    alone = kind(ENV, **settings, **FIXED, total_steps=512)
    alone.train(callback=lambda _: seen.append(places()))
    assert seen[-1] == {cluster.head_node.node_id}
    np.testing.assert_array_equal(numbers(spread), numbers(alone))
    assert list(spread.recent) == list(alone.recent) and spread.steps == alone.steps


@pytest.mark.parametrize(("kind", "settings"), ALGORITHMS, ids=name_of)
def test_training_survives_the_death_of_a_node(
    cluster: Cluster, other: ClusterNode, kind: Any, settings: dict[str, Any]
) -> None:
    after: list[set[str]] = []

    def look(algorithm: Any) -> bool:
        if algorithm.iteration == 2:
            wait_until(lambda: other.node_id in places(), what="an actor on the other node")
            # As a power failure: the driver learns of it by its calls.
            assert other.process is not None
            os.kill(other.process.pid, signal.SIGKILL)
        if algorithm.faults:
            after.append(places())
        return len(after) == 4

    one = kind(ENV, **settings, **FIXED, total_steps=10**9, faults_max=4)
    result = one.train(callback=look)
    assert cluster.head_node is not None and after[-1] == {cluster.head_node.node_id}
    assert 1 <= result.faults <= 2 and result.iterations > 4
    assert "died" in one.latest_faults[0] and np.isfinite(numbers(one)).all()
