"""Where things run in a cluster: strategies, labels, placement groups over several nodes, and locality."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import aktis
from aktis.cluster_utils import Cluster
from aktis.exceptions import ActorUnschedulableError, AktisError, TaskUnschedulableError
from aktis.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from aktis.util.scheduling_strategies import (
    DoesNotExist,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)
from support import wait_until

SECONDS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes with two CPUs each, one of them with a label."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 2}) as cluster:
        cluster.add_node(num_cpus=2, labels={"zone": "b"})
        cluster.add_node(num_cpus=2)
        yield cluster


@pytest.fixture
def driver(cluster: Cluster, no_session: None) -> Any:
    """This process as a driver on the head's node."""
    return aktis.init(cluster.address)


@aktis.remote
def where(*_inputs: Any) -> str:
    return aktis.get_runtime_context().get_node_id()


@aktis.remote
def make(size: int) -> Any:
    return numpy.zeros(size, numpy.uint8)


@aktis.remote(num_cpus=1)
class Resident:
    def where(self) -> str:
        return aktis.get_runtime_context().get_node_id()


def in_group(group: Any, index: int = -1) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=SECONDS)


def has_ended(resident: Any) -> bool:
    try:
        get(resident.where.remote())
    except AktisError:
        return True
    return False


def test_affinity(cluster: Cluster, driver: Any) -> None:
    for node in cluster.list_all_nodes():
        for soft in (False, True):
            strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=soft)
            assert get(where.options(scheduling_strategy=strategy).remote()) == node.node_id
        strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        resident = Resident.options(scheduling_strategy=strategy).remote()
        assert get(resident.where.remote()) == node.node_id
        aktis.kill(resident)
    missing = NodeAffinitySchedulingStrategy("00" * 16, soft=False)
    with pytest.raises(TaskUnschedulableError):
        where.options(scheduling_strategy=missing).remote()
    with pytest.raises(ActorUnschedulableError):
        Resident.options(scheduling_strategy=missing).remote()

    @aktis.remote
    def nested() -> None:
        where.options(scheduling_strategy=missing).remote()

    with pytest.raises(TaskUnschedulableError, match="insists on the node 0000"):
        get(nested.remote())
    soft = NodeAffinitySchedulingStrategy("00" * 16, soft=True)
    assert get(where.options(scheduling_strategy=soft).remote())


def test_spread(cluster: Cluster, driver: Any) -> None:
    residents = [Resident.options(scheduling_strategy="SPREAD").remote() for _ in range(6)]
    counts = Counter(get([resident.where.remote() for resident in residents]))
    assert sorted(counts.values()) == [2, 2, 2]
    for resident in residents:
        aktis.kill(resident)


def test_labels(cluster: Cluster, driver: Any) -> None:
    labelled = next(node.node_id for node in cluster.worker_nodes if is_labelled(node.node_id))
    assert get(where.options(label_selector={"zone": "b"}).remote()) == labelled
    assert get(where.options(label_selector={"zone": "!b"}).remote()) != labelled
    strategy = NodeLabelSchedulingStrategy(hard={"zone": In("a", "b")})
    assert get(where.options(scheduling_strategy=strategy).remote()) == labelled
    strategy = NodeLabelSchedulingStrategy(hard={"zone": DoesNotExist()})
    assert get(where.options(scheduling_strategy=strategy).remote()) != labelled
    fallback = where.options(
        label_selector={"zone": "z"}, fallback_strategy=[{"label_selector": {"zone": "b"}}]
    )
    assert get(fallback.remote()) == labelled
    waiting = where.options(label_selector={"zone": "z"}).remote()
    wait_until(lambda: "no node with zone in (z)" in aktis.explain(waiting), what="the reason")
    aktis.cancel(waiting)


def is_labelled(node_id: str) -> bool:
    return any(node["NodeID"] == node_id and "zone" in node["Labels"] for node in aktis.nodes())


@pytest.mark.parametrize(
    ("strategy", "count", "nodes"),
    [("STRICT_SPREAD", 3, 3), ("SPREAD", 3, 3), ("STRICT_PACK", 2, 1), ("PACK", 2, 1), ("PACK", 4, 2)],
)
def test_groups(driver: Any, strategy: str, count: int, nodes: int) -> None:
    group = placement_group([{"CPU": 1}] * count, strategy=strategy)
    assert group.wait(SECONDS)
    told = placement_group_table(group)
    assert told["state"] == "CREATED"
    assert len(set(told["bundles_to_node_id"].values())) == nodes
    refs = [where.options(scheduling_strategy=in_group(group, index)).remote() for index in range(count)]
    assert dict(enumerate(get(refs))) == told["bundles_to_node_id"]
    resident = Resident.options(scheduling_strategy=in_group(group, 1)).remote()
    assert get(resident.where.remote()) == told["bundles_to_node_id"][1]
    remove_placement_group(group)
    wait_until(lambda: has_ended(resident), what="the actor to go with its group")
    wait_until(lambda: aktis.available_resources().get("CPU") == 6, what="the resources to come back")


def test_a_group_is_used_and_found_from_other_nodes(cluster: Cluster, driver: Any) -> None:
    group = placement_group([{"CPU": 1}], name="shared", strategy="PACK")
    assert group.wait(SECONDS)
    here = placement_group_table(group)["bundles_to_node_id"][0]

    @aktis.remote(num_cpus=0)
    def nested(group: Any) -> Any:
        found = get_placement_group("shared")
        inside = where.options(scheduling_strategy=in_group(group, 0)).remote()
        return found.id.hex(), aktis.get(inside, timeout=SECONDS)

    for node in cluster.list_all_nodes():
        strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        found, ran = get(nested.options(scheduling_strategy=strategy).remote(group))
        assert (found, ran) == (group.id.hex(), here)
    remove_placement_group(group)


def test_bundles_go_where_their_labels_are(cluster: Cluster, driver: Any) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], bundle_label_selector=[{"zone": "b"}, {"zone": "!b"}])
    assert group.wait(SECONDS)
    nodes = placement_group_table(group)["bundles_to_node_id"]
    assert (is_labelled(nodes[0]), is_labelled(nodes[1])) == (True, False)
    remove_placement_group(group)


def test_what_fits_nowhere_waits_for_a_node(no_session: None) -> None:
    with Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 1}) as cluster:
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
        wide = where.options(num_cpus=3).remote()
        assert not group.wait(0.5)
        wait_until(lambda: "no node has 3 CPU" in aktis.explain(wide), what="the reason to be told")
        node = cluster.add_node(num_cpus=4)
        assert group.wait(SECONDS)
        assert get(wide) == node.node_id
        cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: placement_group_table(group)["state"] == "PENDING", what="the loss to be seen")
        cluster.add_node(num_cpus=4)
        wait_until(lambda: placement_group_table(group)["state"] == "CREATED", what="the group to be whole")
        remove_placement_group(group)


@pytest.mark.parametrize("aware", [True, False])
def test_tasks_go_where_their_inputs_are(cluster: Cluster, no_session: None, aware: bool) -> None:
    aktis.init(cluster.address, _system_config={"locality_aware_leasing_enabled": aware})
    home = aktis.get_runtime_context().get_node_id()
    other = cluster.worker_nodes[0].node_id
    there = NodeAffinitySchedulingStrategy(other, soft=False)
    # So much that it would take longer to copy it than to wait for whatever that node was thought to run.
    far = make.options(scheduling_strategy=there).remote(200 << 20)
    aktis.wait([far], timeout=SECONDS, fetch_local=False)
    assert get(where.remote(far)) == (other if aware else home)
