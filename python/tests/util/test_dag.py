"""Graphs of tasks and calls that are bound first and executed later."""

import asyncio
from typing import Any

import pytest

import aktis
from aktis.dag import InputNode, MultiOutputNode
from support import get


@aktis.remote(num_cpus=0)
def add(left: int, right: int = 1) -> int:
    return left + right


@aktis.remote(num_cpus=0)
def total(values: list[Any], more: dict[str, Any]) -> int:
    return sum(aktis.get(values)) + sum(aktis.get(list(more.values())))


@aktis.remote(num_cpus=0)
class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, by: int) -> int:
        self.value += by
        return self.value


def test_a_graph_runs_when_it_is_executed(shared_session: Any) -> None:
    graph = add.bind(add.bind(1), right=add.bind(2, 3))
    assert get(graph.execute()) == 7
    assert get(add.options(name="other").bind(1).execute()) == 2


def test_nodes_inside_of_containers_become_references(shared_session: Any) -> None:
    one = add.bind(0)
    assert get(total.bind([one, one], {"x": one}).execute()) == 3


def test_a_node_runs_once_in_an_execution(shared_session: Any) -> None:
    counter = Counter.remote(0)
    step = counter.add.bind(1)
    assert get(add.bind(step, step).execute()) == 2
    assert get(add.bind(step, step).execute()) == 4


def test_inputs(shared_session: Any) -> None:
    with InputNode() as given:
        whole = add.bind(given, given)
        parts = add.bind(given[0], given.more)
    assert get(whole.execute(2)) == 4
    assert get(parts.execute(2, more=5)) == 7
    with pytest.raises(ValueError, match="2 arguments"):
        whole.execute(1, 2)
    with pytest.raises(ValueError, match="'more'"):
        parts.execute(1, 2)


def test_an_execution_has_an_actor_of_its_own(shared_session: Any) -> None:
    with InputNode() as given:
        counter = Counter.bind(given)
        graph = MultiOutputNode([counter.add.bind(1), counter.add.bind(10)])
    assert get(graph.execute(0)) == [1, 11]
    assert get(graph.execute(5)) == [6, 16]
    with pytest.raises(AttributeError, match="subtract"):
        counter.subtract


def test_a_compiled_graph_keeps_its_actors(shared_session: Any) -> None:
    with InputNode() as given:
        graph = Counter.bind(100).add.bind(given).experimental_compile(_buffer_size_bytes=1000)
    assert [get(graph.execute(number)) for number in (1, 2)] == [101, 103]

    async def run() -> int:
        reference = await graph.execute_async(3)
        return await reference  # type: ignore[no-any-return]

    assert asyncio.run(run()) == 106
    graph.teardown()
    with pytest.raises(RuntimeError, match="torn down"):
        graph.execute(1)
