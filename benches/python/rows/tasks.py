"""Empty tasks: one at a time, a thousand in flight, and submitted by four actors."""

from typing import Any

from clock import Clock
from figure import Demand, Shape
from row import Row, both

IN_FLIGHT = 1000
SUBMITTERS = 4
FROM_EACH = 500


def answer() -> bytes:
    """What the pool runs: its workers are forked, and know it."""
    return b"ok"


# --- one at a time ----------------------------------------------------------------------------


def one_at_a_time(api: Any, clock: Clock) -> dict[str, float]:
    @api.remote
    def empty() -> bytes:
        return b"ok"

    def operation() -> None:
        assert api.get(empty.remote()) == b"ok"

    return {"one-task": clock.rate(operation)}


def one_at_a_time_dask(client: Any, clock: Clock) -> dict[str, float]:
    def empty() -> bytes:
        return b"ok"

    def operation() -> None:
        assert client.submit(empty, pure=False).result() == b"ok"

    return {"one-task": clock.rate(operation)}


def one_at_a_time_pool(pool: Any, clock: Clock) -> dict[str, float]:
    def operation() -> None:
        assert pool.apply(answer) == b"ok"

    return {"one-task": clock.rate(operation)}


# --- in flight --------------------------------------------------------------------------------


def in_flight(api: Any, clock: Clock) -> dict[str, float]:
    @api.remote
    def empty() -> bytes:
        return b"ok"

    def operation() -> None:
        assert api.get([empty.remote() for _ in range(IN_FLIGHT)]) == [b"ok"] * IN_FLIGHT

    return {"tasks-in-flight": clock.rate(operation, IN_FLIGHT)}


def in_flight_dask(client: Any, clock: Clock) -> dict[str, float]:
    def empty() -> bytes:
        return b"ok"

    def operation() -> None:
        futures = [client.submit(empty, pure=False) for _ in range(IN_FLIGHT)]
        assert client.gather(futures) == [b"ok"] * IN_FLIGHT

    return {"tasks-in-flight": clock.rate(operation, IN_FLIGHT)}


def in_flight_pool(pool: Any, clock: Clock) -> dict[str, float]:
    def operation() -> None:
        results = [pool.apply_async(answer) for _ in range(IN_FLIGHT)]
        assert [result.get() for result in results] == [b"ok"] * IN_FLIGHT

    return {"tasks-in-flight": clock.rate(operation, IN_FLIGHT)}


# --- from actors ------------------------------------------------------------------------------


def from_actors(api: Any, clock: Clock) -> dict[str, float]:
    @api.remote
    def empty() -> bytes:
        return b"ok"

    @api.remote
    class Submitter:
        def submit(self, count: int) -> int:
            return int(api.get([empty.remote() for _ in range(count)]).count(b"ok"))

    submitters = [Submitter.remote() for _ in range(SUBMITTERS)]

    def operation() -> None:
        counts = api.get([submitter.submit.remote(FROM_EACH) for submitter in submitters])
        assert counts == [FROM_EACH] * SUBMITTERS

    return {"tasks-from-actors": clock.rate(operation, SUBMITTERS * FROM_EACH)}


ROWS = [
    Row(
        "one-task",
        (
            Shape(
                "one-task",
                "tasks, one at a time",
                "1/s",
                (Demand("ray", 20, 60), Demand("multiprocessing", 1)),
            ),
        ),
        {**both(one_at_a_time), "dask": one_at_a_time_dask, "multiprocessing": one_at_a_time_pool},
    ),
    Row(
        "tasks-in-flight",
        (
            Shape(
                "tasks-in-flight",
                "tasks, 1000 in flight",
                "1/s",
                (Demand("ray", 40, 100), Demand("multiprocessing", 2)),
            ),
        ),
        {**both(in_flight), "dask": in_flight_dask, "multiprocessing": in_flight_pool},
    ),
    Row(
        "tasks-from-actors",
        (Shape("tasks-from-actors", "tasks from 4 submitting actors", "1/s", (Demand("ray", 30, 80),)),),
        both(from_actors),
    ),
]
