"""Placement groups: bundles, capture, actors, removal, detached ones, wrong requests."""

import ray
from outcomes import kinds, show, start, wait_until
from ray.util.placement_group import (
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

start(resources={"x": 4}, namespace="space")


@ray.remote(num_cpus=0)
class A:
    def ok(self):
        return 1

    def group(self):
        found = get_current_placement_group()
        return found.id.hex() if found else None

    def resources(self):
        return sorted(ray.get_runtime_context().get_assigned_resources())

    def child(self):
        return ray.get(current.remote())


@ray.remote(num_cpus=0)
def current():
    found = get_current_placement_group()
    return found.id.hex() if found else None


@ray.remote(num_cpus=0)
def parent():
    return [ray.get(current.remote()), ray.get_runtime_context().get_placement_group_id()]


def inside(group, index=-1, capture=False):
    return PlacementGroupSchedulingStrategy(group, index, capture)


def made(*bundles, **options):
    group = placement_group(list(bundles), **options)
    ray.get(group.ready(), timeout=20)
    return group


def free(name):
    return ray.available_resources().get(name, 0)


group = made({"CPU": 1, "x": 1}, {"x": 2})
strategy = inside(group)
show("bundle_count", lambda: group.bundle_count)
show("bundle_specs", lambda: group.bundle_specs)
show("its id", lambda: len(group.id.hex()) > 0)
show("free beside it", lambda: wait_until(lambda: free("x") == 1 and free("CPU") == 1))
show(
    "a task inside", lambda: ray.get(current.options(scheduling_strategy=strategy).remote()) == group.id.hex()
)
show(
    "a task of bundle 1",
    lambda: ray.get(current.options(scheduling_strategy=inside(group, 1)).remote()) == group.id.hex(),
)
show(
    "a task with resources",
    lambda: (
        ray.get(current.options(resources={"x": 2}, scheduling_strategy=inside(group, 1)).remote())
        == group.id.hex()
    ),
)
show(
    "a task that does not fit its bundle",
    lambda: bool(current.options(resources={"x": 2}, scheduling_strategy=inside(group, 0)).remote()),
)
show(
    "a task that fits no bundle",
    lambda: current.options(resources={"x": 3}, scheduling_strategy=strategy).remote(),
)
show(
    "children are not captured",
    lambda: [
        found == group.id.hex() for found in ray.get(parent.options(scheduling_strategy=strategy).remote())
    ],
)
show(
    "children are captured",
    lambda: [
        found == group.id.hex()
        for found in ray.get(parent.options(scheduling_strategy=inside(group, -1, True)).remote())
    ],
)
show("the old option", lambda: ray.get(current.options(placement_group=group).remote()) == group.id.hex())
actor = A.options(num_cpus=1, scheduling_strategy=inside(group, 0)).remote()
show("an actor inside", lambda: ray.get(actor.group.remote()) == group.id.hex())
show("an actor's child", lambda: ray.get(actor.child.remote()))
show("what the actor holds", lambda: ray.get(actor.resources.remote()))
show("no group in the driver", get_current_placement_group)
show(
    "table: keys",
    lambda: sorted(
        set(placement_group_table(group))
        & {"placement_group_id", "name", "bundles", "bundles_to_node_id", "strategy", "state", "stats"}
    ),
)
show("table: bundles", lambda: placement_group_table(group)["bundles"])
show(
    "table: nodes",
    lambda: (
        set(placement_group_table(group)["bundles_to_node_id"].values())
        == {ray.get_runtime_context().get_node_id()}
    ),
)
show("table of all", lambda: group.id.hex() in placement_group_table())
waiting = placement_group([{"x": 3}])
show("waits", lambda: waiting.wait(0.3))
show("ready in time", lambda: ray.get(waiting.ready(), timeout=0.3))
remove_placement_group(group)
show("room for the next", lambda: waiting.wait(20))


def kinds_of(function):
    try:
        return function()
    except Exception as error:
        return "RayActorError" in kinds(error)


show("its actor is dead", lambda: kinds_of(lambda: ray.get(actor.ok.remote(), timeout=20)))
show(
    "an actor in a removed group",
    lambda: kinds_of(
        lambda: ray.get(A.options(scheduling_strategy=strategy).remote().ok.remote(), timeout=20)
    ),
)
remove_placement_group(waiting)
show("all is free again", lambda: wait_until(lambda: free("x") == 4 and free("CPU") == 2))
for kind in ("PACK", "SPREAD", "STRICT_PACK"):
    one = made({"x": 1}, {"x": 1}, strategy=kind)
    show(f"{kind}: table", lambda given=one: placement_group_table(given)["strategy"])
    remove_placement_group(one)
spread = placement_group([{"x": 1}, {"x": 1}], strategy="STRICT_SPREAD")
show("STRICT_SPREAD on one node", lambda: spread.wait(0.5))
remove_placement_group(spread)
named = made({"x": 1}, name="group", lifetime="detached")
show("named", lambda: ray.util.get_placement_group("group").bundle_specs)
show(
    "sent to a task", lambda: ray.get(ray.remote(num_cpus=0)(lambda group: group.bundle_count).remote(named))
)
show("equal", lambda: ray.util.get_placement_group("group") == named)
show("hashed", lambda: len({ray.util.get_placement_group("group"), named}))
show("by an empty name", lambda: ray.util.get_placement_group(""))
remove_placement_group(named)


def gone(name):
    try:
        ray.util.get_placement_group(name)
    except ValueError:
        return True
    return False


show("the name is gone", lambda: wait_until(lambda: gone("group")))


@ray.remote(num_cpus=0)
def makes():
    group = placement_group([{"x": 1}])
    return group.wait(20)


show("made by a task", lambda: ray.get(makes.remote()))
show("index below -1", lambda: current.options(scheduling_strategy=inside(made({"x": 1}), -2)).remote())
show(
    "a group and num_cpus",
    lambda: current.options(num_cpus=1, scheduling_strategy=inside(made({"x": 1}))).remote(),
)
for name, bundles in {"a bundle of None": [None], "a tuple": ({"x": 1},), "text": "x", "None": None}.items():
    show(f"wrong: {name}", lambda given=bundles: bool(placement_group(given)))
