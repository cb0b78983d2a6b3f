"""Dask's graphs as tasks; needs Dask."""

from typing import Any

import pytest

import aktis
from aktis.util.dask import enable_dask_on_ray, ray_dask_get, ray_dask_get_sync

dask = pytest.importorskip("dask")


@pytest.mark.parametrize("scheduler", [ray_dask_get, ray_dask_get_sync])
def test_delayed_functions_run(shared_session: Any, scheduler: Any) -> None:
    @dask.delayed
    def add(left: int, right: int) -> int:
        return left + right

    assert add(add(1, 2), add(3, 4)).compute(scheduler=scheduler) == 10


def test_persisted_collections_hold_references(shared_session: Any) -> None:
    @dask.delayed
    def two() -> int:
        return 2

    with enable_dask_on_ray():
        (kept,) = dask.persist(two(), ray_persist=True)
        assert any(isinstance(value, aktis.ObjectRef) for value in _values(kept))
        assert kept.compute() == 2


def _values(collection: Any) -> list[Any]:
    graph = dict(collection.__dask_graph__())
    return [getattr(node, "value", node) for node in graph.values()]
