"""Placement groups: states, tables, wrong requests."""

import ray
from outcomes import show, start
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

start(resources={"x": 2})


@ray.remote(num_cpus=1)
def inside():
    group = ray.util.get_current_placement_group()
    return group.id.hex() if group else None


def strategy(group, **options):
    return PlacementGroupSchedulingStrategy(group, **options)


group = placement_group([{"CPU": 1}, {"x": 1}], name="named")
show("ready", lambda: ray.get(group.ready()) is not Exception)
show("waited for", lambda: group.wait(10))
show("bundles", lambda: [sorted(bundle.items()) for bundle in group.bundle_specs])
show("by name", lambda: ray.util.get_placement_group("named") == group)
show("name is taken", lambda: placement_group([{"x": 1}], name="named").wait(5))
show("no such name", lambda: ray.util.get_placement_group("nobody"))
show("state", lambda: placement_group_table(group)["state"])
show("strategy", lambda: placement_group_table(group)["strategy"])
options = {"scheduling_strategy": strategy(group)}
show("inside", lambda: ray.get(inside.options(**options).remote()) == group.id.hex())
show("outside", lambda: ray.get(inside.options(num_cpus=0).remote()))
show("does not fit", lambda: inside.options(num_cpus=5, **options).remote())
wrong = {"scheduling_strategy": strategy(group, placement_group_bundle_index=7)}
show("no such bundle", lambda: inside.options(**wrong).remote())
never = placement_group([{"CPU": 100}])
show("never ready", lambda: never.wait(0.2))
show("pending", lambda: placement_group_table(never)["state"])
remove_placement_group(never)
show("removed while pending", lambda: placement_group_table(never)["state"])
remove_placement_group(group)
show("removed", lambda: placement_group_table(group)["state"])
show("removed twice", lambda: remove_placement_group(group))
show("a task in a removed group", lambda: ray.get(inside.options(**options).remote(), timeout=20))
for bundles in ([], [{}], [{"CPU": 0}], [{"CPU": -1}], [{"bundle": 1}], {"CPU": 1}, [1], [{"CPU": "1"}]):
    show(f"bundles {bundles}", lambda given=bundles: bool(placement_group(given)))
show("no such strategy", lambda: placement_group([{"CPU": 1}], strategy="X"))
show("no such lifetime", lambda: placement_group([{"CPU": 1}], lifetime="X"))
