"""Which node of a cluster runs what: affinity, spreading, labels, resources, GPUs, what is gone."""

import ray
from outcomes import show, wait_until
from ray.cluster_utils import Cluster
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

cluster = Cluster()
cluster.add_node(num_cpus=2, include_dashboard=False, labels={"zone": "a"})
near = cluster.add_node(num_cpus=2, resources={"near": 2}, labels={"zone": "b", "disk": "ssd"})
far = cluster.add_node(num_cpus=4, num_gpus=1, resources={"far": 2}, labels={"zone": "c"})
ray.init(address=cluster.address, log_to_driver=False)
HEAD = ray.get_runtime_context().get_node_id()
NAMES = {HEAD: "head", near.node_id: "near", far.node_id: "far"}


@ray.remote(num_cpus=1)
def where():
    return ray.get_runtime_context().get_node_id()


@ray.remote(num_cpus=0)
class Actor:
    def where(self):
        return ray.get_runtime_context().get_node_id()


def at(**options):
    return NAMES[ray.get(where.options(**options).remote(), timeout=20)]


def actor_at(**options):
    actor = Actor.options(**options).remote()
    return NAMES[ray.get(actor.where.remote(), timeout=20)]


def affinity(node, soft=False):
    return NodeAffinitySchedulingStrategy(node, soft=soft)


def labels(**hard):
    return NodeLabelSchedulingStrategy(hard)


def waits(**options):
    reference = where.options(**options).remote()
    ready, _ = ray.wait([reference], timeout=0.5)
    ray.cancel(reference)
    return len(ready) == 0


def spread():
    found = ray.get([where.options(num_cpus=0, scheduling_strategy="SPREAD").remote() for _ in range(6)])
    return sorted({NAMES[node] for node in found})


def spread_actors():
    actors = [Actor.options(scheduling_strategy="SPREAD", num_cpus=1).remote() for _ in range(3)]
    return sorted({NAMES[node] for node in ray.get([actor.where.remote() for actor in actors])})


GONE = "ab" * (len(HEAD) // 2)
UNSCHEDULABLE = (
    "The node specified via NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible"
)

show("resource near", lambda: at(resources={"near": 1}))
show("resource far", lambda: at(resources={"far": 1}, num_cpus=0))
show("resources of no node", lambda: waits(resources={"near": 1, "far": 1}))
show("a GPU", lambda: at(num_gpus=1))
show("half a GPU", lambda: at(num_gpus=0.5))
show("two GPUs", lambda: waits(num_gpus=2))
show("three CPUs", lambda: at(num_cpus=3))
show("five CPUs", lambda: waits(num_cpus=5))
show("no GPU", lambda: at() != "far")
show("affinity", lambda: at(scheduling_strategy=affinity(near.node_id)))
show("affinity of an actor", lambda: actor_at(scheduling_strategy=affinity(far.node_id)))
show("soft affinity", lambda: at(scheduling_strategy=affinity(near.node_id, soft=True)))
show("affinity to none", lambda: at(scheduling_strategy=affinity(GONE)), UNSCHEDULABLE)
show("soft affinity to none", lambda: at(scheduling_strategy=affinity(GONE, soft=True)) in NAMES.values())
show("affinity of an actor to none", lambda: actor_at(scheduling_strategy=affinity(GONE)))
show(
    "soft affinity of an actor to none",
    lambda: actor_at(scheduling_strategy=affinity(GONE, soft=True)) in NAMES.values(),
)
show(
    "affinity that does not fit",
    lambda: at(scheduling_strategy=affinity(near.node_id), num_cpus=3),
    UNSCHEDULABLE,
)
show("affinity with resources", lambda: at(scheduling_strategy=affinity(far.node_id), resources={"far": 1}))
show("spread", spread)
show("spread actors", spread_actors)
show("label in", lambda: at(scheduling_strategy=labels(zone=In("b"))))
show("label in two", lambda: at(scheduling_strategy=labels(zone=In("b", "c"))) in ("near", "far"))
show("label not in", lambda: at(scheduling_strategy=labels(zone=NotIn("a", "b"))))
show("label exists", lambda: at(scheduling_strategy=labels(disk=Exists())))
show("label does not exist", lambda: at(scheduling_strategy=labels(disk=DoesNotExist())) != "near")
show("selector", lambda: at(label_selector={"zone": "c"}))
show("selector: in", lambda: at(label_selector={"zone": "in(b)"}))
show("selector: not", lambda: at(label_selector={"zone": "!a"}) in ("near", "far"))
show("selector: not in", lambda: at(label_selector={"zone": "!in(a,b)"}))
show("selector of an actor", lambda: actor_at(label_selector={"disk": "ssd"}))
show("selector of none", lambda: waits(label_selector={"zone": "z"}))
show("selector: id", lambda: at(label_selector={"ray.io/node-id": near.node_id}))
show("address of a node", lambda: at(resources={"node:__internal_head__": 0.001}, num_cpus=0))


def group_on(strategy, bundles, seconds=20, **options):
    wait_until(lambda: ray.available_resources().get("CPU") == 8, 3)
    group = placement_group(bundles, strategy=strategy, **options)
    try:
        ray.get(group.ready(), timeout=seconds)
        found = []
        for index in range(len(bundles)):
            inside = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            found.append(at(scheduling_strategy=inside, num_cpus=1))
        return found
    finally:
        remove_placement_group(group)


show("a group with resources", lambda: group_on("PACK", [{"CPU": 1, "near": 1}, {"CPU": 1, "far": 1}]))
show("a group that is packed", lambda: len(set(group_on("STRICT_PACK", [{"CPU": 1}] * 2))))
show("a group that is packed far", lambda: group_on("STRICT_PACK", [{"CPU": 2}] * 2))
show("a group that is spread", lambda: len(set(group_on("STRICT_SPREAD", [{"CPU": 1}] * 3))))
show("a group with labels", lambda: group_on("PACK", [{"CPU": 1}], bundle_label_selector=[{"zone": "b"}]))
show("a group that fits nowhere", lambda: group_on("STRICT_SPREAD", [{"CPU": 1}] * 4, seconds=1))


def new_node():
    reference = where.options(resources={"late": 1}).remote()
    before = len(ray.wait([reference], timeout=0.5)[0])
    late = cluster.add_node(num_cpus=1, resources={"late": 1})
    return [before, ray.get(reference, timeout=20) == late.node_id]


show("a node that comes later", new_node)
show("resources", lambda: [ray.cluster_resources()[name] for name in ("CPU", "GPU", "far")])
ray.shutdown()
cluster.shutdown()
