"""Many references: waiting for them one by one, and an object that holds ten thousand."""

import statistics
from typing import Any

from clock import Clock, milliseconds
from figure import Demand, Shape
from row import Row, both

WAITED_FOR = 1000
WAITED_FOR_READY = 100_000
HELD = 10_000


def wait_one_by_one(api: Any, clock: Clock) -> dict[str, float]:
    @api.remote
    def empty() -> bytes:
        return b"ok"

    def operation() -> None:
        left = [empty.remote() for _ in range(WAITED_FOR)]
        seen = 0
        while left:
            ready, left = api.wait(left)
            seen += len(ready)
        assert seen == WAITED_FOR

    return {"wait": clock.rate(operation)}


def wait_ready(api: Any, clock: Clock) -> dict[str, float]:
    """Aktis alone: Ray takes minutes for so many."""

    def operation(left: list[Any]) -> None:
        seen = 0
        while left:
            ready, left = api.wait(left)
            seen += len(ready)
        assert seen == WAITED_FOR_READY

    rounds = []
    for _ in range(3):
        left = [api.put(number) for number in range(WAITED_FOR_READY)]
        rounds.append(milliseconds(lambda left=left: operation(left)))
    return {"wait-ready": statistics.median(rounds)}


def wait_dask(client: Any, clock: Clock) -> dict[str, float]:
    from distributed import as_completed

    def empty() -> bytes:
        return b"ok"

    def operation() -> None:
        futures = [client.submit(empty, pure=False) for _ in range(WAITED_FOR)]
        assert sum(1 for _ in as_completed(futures)) == WAITED_FOR

    return {"wait": clock.rate(operation)}


def identity(number: int) -> int:
    """What the pool runs."""
    return number


def wait_pool(pool: Any, clock: Clock) -> dict[str, float]:
    def operation() -> None:
        assert sum(1 for _ in pool.imap_unordered(identity, range(WAITED_FOR))) == WAITED_FOR

    return {"wait": clock.rate(operation)}


def get_references(api: Any, clock: Clock) -> dict[str, float]:
    @api.remote
    def make() -> list[Any]:
        return [api.put(number) for number in range(HELD)]

    holder = make.remote()
    references = api.get(holder)
    assert len(references) == HELD and api.get(references[-1]) == HELD - 1
    del references

    def operation() -> None:
        assert len(api.get(holder)) == HELD

    return {"get-references": clock.rate(operation)}


ROWS = [
    Row(
        "wait",
        (Shape("wait", "wait for 1000 references, one by one", "1/s", (Demand("ray", 50, 200),)),),
        {**both(wait_one_by_one), "dask": wait_dask, "multiprocessing": wait_pool},
    ),
    Row(
        "wait-ready",
        (
            Shape(
                "wait-ready",
                "wait for 100,000 ready references, one by one",
                "ms",
                (Demand("", 1000),),
                less_is_better=True,
            ),
        ),
        {"aktis": wait_ready},
    ),
    Row(
        "get-references",
        (
            Shape(
                "get-references", "get of an object with 10,000 references", "1/s", (Demand("ray", 50, 100),)
            ),
        ),
        both(get_references),
    ),
]
