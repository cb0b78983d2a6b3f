"""Labels of the node, and tasks and actors that want some."""

from typing import Any

import pytest

import aktis
from aktis.util.placement_group import placement_group, remove_placement_group
from aktis.util.scheduling_strategies import DoesNotExist, Exists, In, NodeLabelSchedulingStrategy, NotIn
from support import get, identity, wait_until

LABELS = {"zone": "a", "disk": "fast"}


@pytest.fixture(autouse=True)
def labelled(no_session: None) -> None:
    aktis.init(num_cpus=1, labels=LABELS)


def check_selector(name: str, wanted: str, fulfilled: bool) -> None:
    ref = identity.options(label_selector={name: wanted}).remote(1)
    if fulfilled:
        assert get(ref) == 1
    else:
        wait_until(lambda: f"no node with {name}" in aktis.explain(ref), what="the reason to be told")
        aktis.cancel(ref)


@pytest.mark.parametrize(
    ("wanted", "fulfilled"),
    [
        ("a", True),
        ("b", False),
        ("!a", False),
        ("!b", True),
        ("in(a, b)", True),
        ("in(b,c)", False),
        ("!in(a,b)", False),
        ("!in(b)", True),
    ],
)
def test_selectors(wanted: str, fulfilled: bool) -> None:
    check_selector("zone", wanted, fulfilled)
    # A label that is not there has no value at all.
    check_selector("missing", wanted, wanted.startswith("!"))


@pytest.mark.parametrize(
    ("condition", "fulfilled"),
    [
        ({"zone": In("a", "b")}, True),
        ({"zone": In("b")}, False),
        ({"zone": NotIn("b"), "missing": NotIn("b")}, True),
        ({"zone": NotIn("a")}, False),
        ({"zone": Exists()}, True),
        ({"missing": Exists()}, False),
        ({"missing": DoesNotExist()}, True),
        ({"zone": DoesNotExist()}, False),
    ],
)
def test_strategies(condition: Any, fulfilled: bool) -> None:
    strategy = NodeLabelSchedulingStrategy(hard=condition)
    ref = identity.options(scheduling_strategy=strategy).remote(1)
    if fulfilled:
        assert get(ref) == 1
    else:
        wait_until(lambda: "there is no node with" in aktis.explain(ref))
        aktis.cancel(ref)


def test_tasks_go_where_the_labels_are_and_wait_if_there_are_none() -> None:
    assert get(identity.options(label_selector={"zone": "a", "disk": "!slow"}).remote(1)) == 1
    ref = identity.options(label_selector={"zone": "b"}).remote(2)
    wait_until(lambda: "no node with zone in (b)" in aktis.explain(ref), what="the reason to be told")
    assert not aktis.wait([ref], timeout=0)[0]
    again = identity.options(
        label_selector={"zone": "b"}, fallback_strategy=[{"label_selector": {"zone": "in(a,c)"}}]
    )
    assert get(again.remote(3)) == 3


def test_a_function_follows_the_labels_of_the_session() -> None:
    wants = identity.options(label_selector={"zone": "b"})
    waiting = wants.remote(1)
    aktis.shutdown()
    aktis.init(num_cpus=1, labels={"zone": "b"})
    assert get(wants.remote(2)) == 2
    del waiting


def test_bundles_of_placement_groups() -> None:
    here = placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "a"}])
    assert here.wait(20)
    remove_placement_group(here)
    elsewhere = placement_group([{"CPU": 1}, {"CPU": 1}], bundle_label_selector=[{}, {"zone": "b"}])
    assert not elsewhere.wait(0)
    assert elsewhere.bundle_specs == [{"CPU": 1}, {"CPU": 1}]
    remove_placement_group(elsewhere)


def test_actors() -> None:
    @aktis.remote
    class Actor:
        def method(self) -> int:
            return 1

    assert get(Actor.options(label_selector={"zone": "a"}).remote().method.remote()) == 1
    elsewhere = Actor.options(label_selector={"zone": "b"}).remote()
    wait_until(lambda: "zone in (b)" in aktis.explain(elsewhere), what="the reason to be told")


def test_children_see_the_labels_too() -> None:
    @aktis.remote
    def parent() -> Any:
        return aktis.get(identity.options(label_selector={"zone": "a"}).remote(7))

    assert get(parent.remote()) == 7


def test_every_node_has_its_id_as_a_label() -> None:
    here = aktis.get_runtime_context().get_node_id()
    assert aktis.get_runtime_context().get_node_labels()["ray.io/node-id"] == here
    function = aktis.remote(num_cpus=0)(aktis.is_initialized)
    assert aktis.get(function.options(label_selector={"ray.io/node-id": here}).remote(), timeout=20)
    elsewhere = function.options(label_selector={"ray.io/node-id": f"!{here}"}).remote()
    assert aktis.wait([elsewhere], timeout=0.1)[0] == []
    aktis.cancel(elsewhere)
