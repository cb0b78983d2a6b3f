"""What the state API says of a cluster's nodes, and of what is on them, before and after one is lost."""

import os
import time

import ray
from outcomes import show, wait_until
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray.util.state import (
    get_actor,
    get_node,
    get_placement_group,
    list_actors,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_tasks,
    summarize_actors,
    summarize_tasks,
)

SECONDS = 30
cluster = Cluster()
cluster.add_node(num_cpus=2, resources={"head": 1}, include_dashboard=True)
found = ray.init(address=cluster.address, log_to_driver=False)
os.environ["RAY_ADDRESS"] = found.address_info["address"]
far = cluster.add_node(num_cpus=1, resources={"far": 4})
here = ray.get_runtime_context().get_node_id()
there = far.node_id
FAR = {"resources": {"far": 0.1}, "num_cpus": 0}


@ray.remote(**FAR)
class Far:
    def node(self):
        return ray.get_runtime_context().get_node_id()

    def wait(self):
        time.sleep(600)


@ray.remote(num_cpus=0)
class Near:
    def node(self):
        return ray.get_runtime_context().get_node_id()


@ray.remote(**FAR)
def work():
    return ray.get_runtime_context().get_node_id()


@ray.remote(max_retries=0, **FAR)
def wait():
    time.sleep(600)


def node_rows():
    return {row.node_id: row for row in list_nodes(detail=True)}


def actor_row(actor):
    return get_actor(actor._actor_id.hex())


def is_state(actor, state):
    return wait_until(lambda: actor_row(actor).state == state, SECONDS)


def task_rows(name):
    return [row for row in list_tasks(detail=True) if row.name == name]


def task_state(name, state, seconds=SECONDS):
    return wait_until(lambda: [row.state for row in task_rows(name)] == [state], seconds)


actors = {"far": Far.options(name="far one").remote(), "near": Near.options(resources={"head": 0.1}).remote()}
actors["restarts"] = Far.options(max_restarts=1).remote()
actors["detached"] = Far.options(name="detached", lifetime="detached").remote()
for actor in actors.values():
    ray.get(actor.node.remote())
group = placement_group([{"head": 0.1}, {"far": 0.1}], name="both")
ray.get(group.ready())
large = ray.put(bytes(200_000))
far_task = work.options(name="far work").remote()
ray.get(far_task)
waits = wait.options(name="waits there").remote()
cannot = work.options(name="cannot run", resources={"nowhere": 1}).remote()
call = actors["far"].wait.options(name="waits in a call").remote()

show("nodes", lambda: sorted(row.state for row in list_nodes()))
show("heads", lambda: [node_rows()[node].is_head_node for node in (here, there)])
show("resources", lambda: node_rows()[there].resources_total["far"])
show("labels", lambda: node_rows()[there].labels["ray.io/node-id"] == there)
show("one node", lambda: get_node(there).state)
show("a node that is not there", lambda: get_node("ab" * 28))
show("nodes alive", lambda: len(list_nodes(filters=[("state", "=", "ALIVE")])))
show(
    "the head by filter",
    lambda: [row.node_id == here for row in list_nodes(filters=[("is_head_node", "=", True)])],
)
show("nodes of actors", lambda: [actor_row(actors[name]).node_id == there for name in ("far", "near")])
show("actors of a node", lambda: len(list_actors(filters=[("node_id", "=", there)])))
show("actors by name", lambda: [row.class_name for row in list_actors(filters=[("name", "=", "far one")])])
show("is it detached", lambda: [actor_row(actors[name]).is_detached for name in ("detached", "far")])
show("summary of actors", lambda: summarize_actors()["cluster"]["summary"]["Far"]["state_counts"])
show(
    "nodes of tasks", lambda: [task_state("far work", "FINISHED"), task_rows("far work")[0].node_id == there]
)
show(
    "a task that runs",
    lambda: [task_state("waits there", "RUNNING"), task_rows("waits there")[0].node_id == there],
)
show(
    "a task that waits",
    lambda: [task_state("cannot run", "PENDING_NODE_ASSIGNMENT"), task_rows("cannot run")[0].node_id],
)
show(
    "a call that runs",
    lambda: [task_state("waits in a call", "RUNNING", 5), task_rows("waits in a call")[0].type],
)
show(
    "a large object",
    lambda: [row.object_id for row in list_objects() if row.object_id == large.hex()] == [large.hex()],
)
show(
    "bundles",
    lambda: [
        bundle["node_id"] == node
        for bundle, node in zip(get_placement_group(group.id.hex()).bundles, (here, there), strict=True)
    ],
)
show("groups by name", lambda: [row.state for row in list_placement_groups(filters=[("name", "=", "both")])])

cluster.remove_node(far, allow_graceful=False)
show("after the loss", lambda: wait_until(lambda: node_rows()[there].state == "DEAD", SECONDS))
show("the lost node", lambda: get_node(there).state)
show("in nodes()", lambda: [row["Alive"] for row in ray.nodes() if row["NodeID"] == there])
show("its actor", lambda: is_state(actors["far"], "DEAD"))
show("its detached actor", lambda: is_state(actors["detached"], "DEAD"))
show(
    "its actor that restarts",
    lambda: [
        wait_until(lambda: actor_row(actors["restarts"]).state in ("RESTARTING", "PENDING_CREATION"), SECONDS)
    ],
)
show("get of its task", lambda: ray.get(waits, timeout=SECONDS))
show("its task", lambda: task_state("waits there", "FAILED"))
show("the task's error", lambda: task_rows("waits there")[0].error_type)
show("get of its call", lambda: ray.get(call, timeout=SECONDS))
show("its call", lambda: task_state("waits in a call", "FAILED"))
show("the call's error", lambda: task_rows("waits in a call")[0].error_type)
show(
    "its bundle",
    lambda: [
        wait_until(lambda: get_placement_group(group.id.hex()).state != "CREATED", SECONDS),
        get_placement_group(group.id.hex()).state,
    ],
)
show(
    "affinity to it",
    lambda: ray.get(
        work.options(resources={}, scheduling_strategy=NodeAffinitySchedulingStrategy(there, False)).remote(),
        timeout=SECONDS,
    ),
)
show(
    "soft affinity to it",
    lambda: (
        ray.get(
            work.options(
                resources={}, scheduling_strategy=NodeAffinitySchedulingStrategy(there, True)
            ).remote(),
            timeout=SECONDS,
        )
        == here
    ),
)

far = cluster.add_node(num_cpus=1, resources={"far": 4})
show(
    "it restarts", lambda: [is_state(actors["restarts"], "ALIVE"), actor_row(actors["restarts"]).num_restarts]
)
show("it is elsewhere", lambda: actor_row(actors["restarts"]).node_id == far.node_id)
show(
    "the bundle is elsewhere",
    lambda: [
        wait_until(lambda: get_placement_group(group.id.hex()).state == "CREATED", SECONDS),
        get_placement_group(group.id.hex()).bundles[1]["node_id"] == far.node_id,
    ],
)
show("nodes again", lambda: sorted(row.state for row in list_nodes()))
show("summary of tasks", lambda: summarize_tasks()["cluster"]["summary"]["far work"]["state_counts"])
ray.shutdown()
cluster.shutdown()
