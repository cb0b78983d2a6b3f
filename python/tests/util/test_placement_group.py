"""Placement groups: reserved all or none, bad requests, names, tables, removal."""

from typing import Any

import pytest

import aktis
from aktis.exceptions import ActorDiedError, ActorPlacementGroupRemoved, TaskPlacementGroupRemoved
from aktis.util import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from aktis.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from support import Latch, wait_until

BAD_BUNDLES = [
    [],
    {},
    ({"CPU": 1},),
    [{}],
    [{"CPU": 0}],
    [{"CPU": 1}, {}],
    [{"CPU": -1}],
    [{"CPU": "1"}],
    [{"CPU": True}],
    [{"CPU": float("nan")}],
    [{"CPU": 0.00001}],
    [{1: 1}],
    ["CPU"],
    "CPU",
    None,
]


@pytest.mark.parametrize("bundles", BAD_BUNDLES, ids=repr)
def test_bad_bundles_raise_in_the_caller(no_session: Any, bundles: Any) -> None:
    with pytest.raises(ValueError):
        placement_group(bundles)
    assert not aktis.is_initialized()  # Refused before anything was started.


def test_other_bad_requests(no_session: Any) -> None:
    with pytest.raises(ValueError, match="strategy"):
        placement_group([{"CPU": 1}], strategy="SCATTER")
    with pytest.raises(ValueError, match="lifetime"):
        placement_group([{"CPU": 1}], lifetime="eternal")
    with pytest.raises(ValueError, match="name"):
        placement_group([{"CPU": 1}], name=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bundle_label_selector"):
        placement_group([{"CPU": 1}], bundle_label_selector=[{}, {}])


def test_ready_and_resources(session: Any) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    assert aktis.get(group.ready()) is None
    assert group.wait(5) is True
    assert aktis.available_resources().get("CPU", 0) == 0
    assert group.bundle_count == 2
    assert group.bundle_specs == [{"CPU": 1}, {"CPU": 1}]
    remove_placement_group(group)
    wait_until(lambda: aktis.available_resources().get("CPU", 0) == 2)
    remove_placement_group(group)  # Twice does no harm.


def test_all_or_nothing(session: Any) -> None:
    first = placement_group([{"CPU": 1}])
    assert first.wait(10)
    second = placement_group([{"CPU": 1}, {"CPU": 1}])
    assert second.wait(0.1) is False
    assert aktis.available_resources().get("CPU", 0) == 1  # It holds nothing while it waits.
    remove_placement_group(first)
    assert second.wait(10)
    assert aktis.available_resources().get("CPU", 0) == 0


def test_an_infeasible_group_stays_pending(session: Any) -> None:
    group = placement_group([{"CPU": 1000}])
    assert group.wait(0.1) is False
    assert placement_group_table(group)["state"] == "PENDING"
    remove_placement_group(group)


def test_ready_fails_when_a_pending_group_is_removed(session: Any) -> None:
    group = placement_group([{"CPU": 1000}], name="never")
    refs = [group.ready(), get_placement_group("never").ready()]
    remove_placement_group(group)
    for ref in refs:
        with pytest.raises(TaskPlacementGroupRemoved):
            aktis.get(ref, timeout=20)


def test_strict_spread_needs_as_many_nodes(session: Any) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(0.1) is False
    alone = placement_group([{"CPU": 1}], strategy="STRICT_SPREAD")
    assert alone.wait(10)


def test_tasks_and_actors_run_in_a_group(session: Any) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    assert group.wait(10)

    @aktis.remote(num_cpus=1)
    def where() -> Any:
        found = get_current_placement_group()
        return None if found is None else (found.id.hex(), found.bundle_specs)

    @aktis.remote(num_cpus=1)
    class Actor:
        def where(self) -> Any:
            found = get_current_placement_group()
            return None if found is None else found.id.hex()

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    expected = (group.id.hex(), [{"CPU": 1}, {"CPU": 1}])
    # All CPUs are reserved, so these run only because they may use the group's.
    assert aktis.get(where.options(scheduling_strategy=strategy).remote(), timeout=20) == expected
    assert aktis.get(where.options(placement_group=group).remote(), timeout=20) == expected
    actor = Actor.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 1)).remote()
    assert aktis.get(actor.where.remote(), timeout=20) == group.id.hex()
    assert get_current_placement_group() is None


def test_what_does_not_fit_a_bundle_is_refused_at_the_call(session: Any) -> None:
    group = placement_group([{"CPU": 1}])

    @aktis.remote
    def work() -> None: ...

    @aktis.remote
    class Actor: ...

    def options(index: int = -1) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(group, index)

    with pytest.raises(ValueError):
        work.options(scheduling_strategy=options(1)).remote()
    with pytest.raises(ValueError):
        work.options(num_cpus=2, scheduling_strategy=options()).remote()
    with pytest.raises(ValueError):
        work.options(resources={"none": 1}, scheduling_strategy=options(0)).remote()
    with pytest.raises(ValueError):
        Actor.options(num_gpus=1, scheduling_strategy=options()).remote()


def test_removal_kills_actors_and_fails_tasks(session: Any, latch: Latch) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group)

    @aktis.remote(num_cpus=1)
    class Actor:
        def hello(self) -> str:
            return "hello"

    @aktis.remote(num_cpus=1, max_retries=0)
    def work(latch: Latch) -> None:
        latch.wait()

    actor = Actor.options(scheduling_strategy=strategy).remote()
    assert aktis.get(actor.hello.remote(), timeout=20) == "hello"
    running = work.options(scheduling_strategy=strategy).remote(latch)
    latch.wait_for_arrivals(1)
    queued = work.options(scheduling_strategy=strategy).remote(latch)
    remove_placement_group(group)
    with pytest.raises(ActorPlacementGroupRemoved, match="was removed") as raised:
        aktis.get(actor.hello.remote(), timeout=20)
    assert isinstance(raised.value, ActorDiedError)
    for ref in (running, queued):
        with pytest.raises(TaskPlacementGroupRemoved, match="was removed"):
            aktis.get(ref, timeout=20)
    late = Actor.options(scheduling_strategy=strategy).remote()
    with pytest.raises(ActorPlacementGroupRemoved, match="was removed"):
        aktis.get(late.hello.remote(), timeout=20)
    wait_until(lambda: aktis.available_resources().get("CPU", 0) == 2)


def test_names(session: Any) -> None:
    group = placement_group([{"CPU": 1}], name="trainers")
    found = get_placement_group("trainers")
    assert found == group
    assert hash(found) == hash(group)
    assert found.bundle_specs == [{"CPU": 1}]
    assert found.wait(10)
    with pytest.raises(ValueError, match="trainers"):
        placement_group([{"CPU": 1}], name="trainers")
    remove_placement_group(group)
    wait_until(lambda: placement_group_table(group).get("state", "REMOVED") == "REMOVED")
    with pytest.raises(ValueError, match="no placement group"):
        get_placement_group("trainers")
    with pytest.raises(ValueError):
        get_placement_group("")


def test_table(session: Any) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 0.5}], strategy="SPREAD", name="tabled")
    assert group.wait(10)
    table = placement_group_table(group)
    assert table["placement_group_id"] == group.id.hex()
    assert table["name"] == "tabled"
    assert table["strategy"] == "SPREAD"
    assert table["state"] == "CREATED"
    assert table["bundles"] == {0: {"CPU": 1}, 1: {"CPU": 0.5}}
    assert placement_group_table()[group.id.hex()] == table


def test_a_handle_can_be_passed_and_used_elsewhere(session: Any) -> None:
    group = placement_group([{"CPU": 1}])

    @aktis.remote(num_cpus=0)
    def use(group: PlacementGroup) -> Any:
        @aktis.remote(num_cpus=1)
        def inner() -> int:
            return 42

        aktis.get(group.ready())
        strategy = PlacementGroupSchedulingStrategy(group)
        return group.bundle_specs, aktis.get(inner.options(scheduling_strategy=strategy).remote())

    assert aktis.get(use.remote(group), timeout=20) == ([{"CPU": 1}], 42)


def test_children_follow_only_when_asked(session: Any) -> None:
    group = placement_group([{"CPU": 1}])

    @aktis.remote(num_cpus=0)
    def parent() -> Any:
        @aktis.remote(num_cpus=0)
        def child() -> Any:
            found = get_current_placement_group()
            return None if found is None else found.id.hex()

        return aktis.get(child.remote())

    def strategy(follow: bool) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=follow)

    assert (
        aktis.get(parent.options(scheduling_strategy=strategy(True)).remote(), timeout=20) == group.id.hex()
    )
    assert aktis.get(parent.options(scheduling_strategy=strategy(False)).remote(), timeout=20) is None


def test_the_empty_group(no_session: Any) -> None:
    assert PlacementGroup.empty().is_empty
    assert PlacementGroup.empty().bundle_count == 0


def test_a_removed_group_stays_in_the_table(session: Any) -> None:
    never = placement_group([{"CPU": 1000}], name="never")
    made = placement_group([{"CPU": 1}])
    aktis.get(made.ready())
    for group in (never, made):
        remove_placement_group(group)
        assert placement_group_table(group)["state"] == "REMOVED"
        assert placement_group_table()[group.id.hex()]["state"] == "REMOVED"
    assert placement_group_table(made)["bundles"] == {0: {"CPU": 1.0}}


def test_a_taken_name_is_an_error_of_both_families(session: Any) -> None:
    keep = placement_group([{"CPU": 1}], name="taken")
    with pytest.raises(aktis.exceptions.RaySystemError):
        placement_group([{"CPU": 1}], name="taken")
    with pytest.raises(ValueError):
        placement_group([{"CPU": 1}], name="taken")
    remove_placement_group(keep)


def test_reserved_and_deprecated_resources(session: Any) -> None:
    with pytest.raises(ValueError, match="reserved"):
        placement_group([{"bundle": 1}])
    with pytest.warns(DeprecationWarning, match="Setting 'object_store_memory' for bundles is deprecated"):
        remove_placement_group(placement_group([{"CPU": 1, "object_store_memory": 10}]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"strategy": "X"}, "Invalid placement group strategy"),
        ({"strategy": "PACK", "topology_strategy": {}}, "strategy` and `topology_strategy` cannot both"),
        ({"topology_strategy": ["x"]}, "must be a dict"),
        ({"topology_strategy": {"": "PACK"}}, "keys must be non-empty strings"),
        ({"topology_strategy": {"ray.io/node-id": "X"}}, "Invalid topology strategy"),
        ({"topology_strategy": {"zone": "SPREAD"}}, "only 'STRICT_PACK' is supported"),
        ({"topology_strategy": {"a": "STRICT_PACK", "b": "STRICT_PACK"}}, "at most one topology label"),
    ],
)
def test_a_group_is_checked_without_a_cluster(arguments: dict[str, Any], text: str) -> None:
    from aktis.util.placement_group import NODE_ID_LABEL_KEY, validate_placement_group

    with pytest.raises(ValueError, match=text):
        validate_placement_group([{"CPU": 1}], **arguments)
    assert validate_placement_group([{"CPU": 1}], topology_strategy={NODE_ID_LABEL_KEY: "SPREAD"})


def test_bundles_are_seen_among_free_resources(session: Any) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    aktis.get(group.ready())
    assert aktis.available_resources()[f"bundle_group_{group.id.hex()}"] == 2000
    remove_placement_group(group)
