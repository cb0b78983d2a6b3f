"""Placement groups: create, wait until they are there, remove."""

from importlib import import_module
from typing import Any

from clock import Clock
from figure import Demand, Shape
from row import Row, both

AT_ONCE = 50


def create_and_remove(api: Any, clock: Clock) -> dict[str, float]:
    groups = import_module(f"{api.__name__}.util.placement_group")

    def operation() -> None:
        created = [groups.placement_group([{"CPU": 0.01}]) for _ in range(AT_ONCE)]
        for group in created:
            assert group.wait(timeout_seconds=30)
        for group in created:
            groups.remove_placement_group(group)

    return {"placement-groups": clock.rate(operation, AT_ONCE)}


ROWS = [
    Row(
        "placement-groups",
        (Shape("placement-groups", "placement groups created and removed", "1/s", (Demand("ray", 20),)),),
        both(create_and_remove),
    )
]
