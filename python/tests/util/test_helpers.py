"""What aktis.util exports: loops around wait, names of actors, serialisers, the package itself."""

import ipaddress
import threading
from typing import Any

import pytest

import aktis
from aktis.util import (
    as_completed,
    deregister_serializer,
    get_node_ip_address,
    list_named_actors,
    map_unordered,
    register_serializer,
)
from support import Latch


@aktis.remote(num_cpus=0)
def echo(value: Any, latch: Latch | None = None) -> Any:
    if latch is not None:
        latch.wait()
    return value


def test_as_completed_gives_values_as_they_come(shared_session: Any, latch: Latch) -> None:
    references = [echo.remote(0, latch), echo.remote(1), echo.remote(2)]
    results = as_completed(references)
    assert {next(results), next(results)} == {1, 2}
    latch.open()
    assert list(results) == [0]
    ready = list(as_completed(references, yield_obj_refs=True, chunk_size=1))
    assert set(ready) == set(references)
    assert list(as_completed([])) == []
    with pytest.raises(ValueError):
        list(as_completed(references, chunk_size=0))


def test_map_unordered_has_a_limit(shared_session: Any) -> None:
    drawn: list[int] = []

    def items() -> Any:
        for number in range(20):
            drawn.append(number)
            yield number

    results = map_unordered(echo, items(), backpressure_size=3)
    first = next(results)
    assert len(drawn) == 3
    assert sorted([first, *results]) == list(range(20))
    assert sorted(map_unordered(echo, range(5), backpressure_size=None)) == list(range(5))
    with pytest.raises(ValueError):
        list(map_unordered(echo, [1], backpressure_size=0))


def test_named_actors(session: Any) -> None:
    @aktis.remote(num_cpus=0)
    class Actor:
        def ready(self) -> None: ...

    assert list_named_actors() == []
    here = [Actor.options(name=name).remote() for name in ("b", "a")]
    there = Actor.options(name="c", namespace="else/where").remote()
    unnamed = Actor.remote()
    aktis.get([actor.ready.remote() for actor in [*here, there, unnamed]])
    assert list_named_actors() == ["a", "b"]
    everywhere = list_named_actors(all_namespaces=True)
    assert {"name": "c", "namespace": "else/where"} in everywhere
    assert sorted(entry["name"] for entry in everywhere) == ["a", "b", "c"]


class Connection:
    """Cannot be pickled by itself."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lock = threading.Lock()


def test_serializers(shared_session: Any) -> None:
    with pytest.raises(TypeError):
        aktis.put(Connection("here"))
    register_serializer(Connection, serializer=lambda c: c.address, deserializer=Connection)
    try:
        assert aktis.get(aktis.put(Connection("here"))).address == "here"
        assert aktis.get(echo.remote([Connection("there").address])) == ["there"]

        @aktis.remote
        def address(connection: Any) -> str:
            result: str = connection.address
            return result

        assert aktis.get(address.remote(Connection("far"))) == "far"
    finally:
        deregister_serializer(Connection)
    with pytest.raises(TypeError):
        aktis.put(Connection("here"))
    deregister_serializer(Connection)  # Twice does no harm.


def test_the_address_of_this_machine() -> None:
    assert ipaddress.ip_address(get_node_ip_address())


def test_names_of_the_package(run_script: Any) -> None:
    result = run_script(
        """
        import aktis
        import aktis.util
        import sys

        assert not any(name.startswith("aktis.util.multiprocessing") for name in sys.modules)
        assert callable(aktis.util.placement_group), "the function, not its module"
        for name in aktis.util.__all__:
            assert getattr(aktis.util, name) is not None, name
        import aktis.util.placement_group
        assert callable(aktis.util.placement_group)
        assert aktis.util.queue.Queue and aktis.util.state.list_tasks and aktis.util.metrics.Counter
        assert set(aktis.util.__all__) <= set(dir(aktis.util))
        try:
            aktis.util.nonsense
        except AttributeError as error:
            print(error)
        """
    )
    assert "nonsense" in result.stdout
