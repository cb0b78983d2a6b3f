"""Scheduling strategies: values that are checked when they are made, and what they do to a task."""

import os
from typing import Any

import pytest

import aktis
from aktis.exceptions import AktisError, TaskUnschedulableError
from aktis.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)


@aktis.remote
def here() -> str:
    node: str = aktis.get_runtime_context().get_node_id()
    return node


def test_affinity_to_this_node(shared_session: Any) -> None:
    node = aktis.get_runtime_context().get_node_id()
    for soft in (False, True):
        strategy = NodeAffinitySchedulingStrategy(node, soft=soft)
        assert aktis.get(here.options(scheduling_strategy=strategy).remote()) == node


def test_affinity_to_a_missing_node(shared_session: Any) -> None:
    missing = "00" * 16
    with pytest.raises(TaskUnschedulableError):
        aktis.get(
            here.options(scheduling_strategy=NodeAffinitySchedulingStrategy(missing, soft=False)).remote()
        )
    soft = NodeAffinitySchedulingStrategy(missing, soft=True)
    assert aktis.get(here.options(scheduling_strategy=soft).remote()) != missing


def test_an_actor_on_a_missing_node(shared_session: Any) -> None:
    @aktis.remote
    class Actor:
        def hello(self) -> None: ...

    strategy = NodeAffinitySchedulingStrategy("00" * 16, soft=False)
    with pytest.raises(AktisError):
        aktis.get(Actor.options(scheduling_strategy=strategy).remote().hello.remote(), timeout=20)


def test_plain_strings(shared_session: Any) -> None:
    assert aktis.get(here.options(scheduling_strategy="SPREAD").remote())
    assert aktis.get(here.options(scheduling_strategy="DEFAULT").remote())
    with pytest.raises(ValueError):
        here.options(scheduling_strategy="ELSEWHERE")


def test_affinity_is_checked() -> None:
    assert NodeAffinitySchedulingStrategy(bytes(16), soft=True).node_id == "00" * 16
    with pytest.raises(TypeError):
        NodeAffinitySchedulingStrategy(12, soft=True)
    with pytest.raises(ValueError):
        NodeAffinitySchedulingStrategy("00" * 16, soft=False, _spill_on_unavailable=True)
    with pytest.raises(ValueError):
        NodeAffinitySchedulingStrategy("00" * 16, soft=True, _fail_on_unavailable=True)


def test_bundle_index_is_checked() -> None:
    assert PlacementGroupSchedulingStrategy(None).placement_group_bundle_index == -1
    with pytest.raises(ValueError):
        PlacementGroupSchedulingStrategy(None, -2)
    with pytest.raises(TypeError):
        PlacementGroupSchedulingStrategy(None, "0")  # type: ignore[arg-type]


def test_labels_are_checked() -> None:
    strategy = NodeLabelSchedulingStrategy(
        {"zone": In("a", "b"), "gpu": Exists()}, soft={"spot": DoesNotExist()}
    )
    assert strategy.hard == {"zone": In("a", "b"), "gpu": Exists()}
    assert strategy.soft == {"spot": DoesNotExist()}
    for bad in ({"zone": "a"}, {1: Exists()}, ["zone"]):
        with pytest.raises(TypeError):
            NodeLabelSchedulingStrategy(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        NodeLabelSchedulingStrategy({})
    with pytest.raises(ValueError):
        In()
    with pytest.raises(TypeError):
        NotIn("a", 1)  # type: ignore[arg-type]


def test_equality_and_text() -> None:
    assert In("a") == In("a")
    assert In("a") != In("b")
    assert In("a") != NotIn("a")
    assert repr(In("a", "b")) == "In(values=['a', 'b'])"
    assert len({Exists(), Exists(), DoesNotExist()}) == 2


def test_a_node_that_can_never_hold_it_is_refused(shared_session: Any) -> None:
    here = NodeAffinitySchedulingStrategy(aktis.get_runtime_context().get_node_id(), soft=False)
    function = aktis.remote(num_cpus=1000, scheduling_strategy=here)(os.getpid)
    with pytest.raises(
        aktis.exceptions.TaskUnschedulableError, match="doesn't exist any more or is infeasible"
    ):
        aktis.get(function.remote())
