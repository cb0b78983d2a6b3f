"""Calls of actors: plain, with sixteen threads, and async; one at a time, in flight, and with a reference."""

import time
from multiprocessing.managers import BaseManager
from typing import Any

from clock import Clock
from figure import Demand, Shape
from row import Measure, Row, both

IN_FLIGHT = 1000
CLIENTS = SERVERS = 2
TO_EACH = 250


class Counter:
    """What the standard library's nearest thing to an actor, an object behind a manager, serves."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


class Manager(BaseManager):
    """The process that holds the object."""


Manager.register("Counter", Counter)


def plain_actor(api: Any, **options: Any) -> Any:
    class Plain:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

        def cpu_seconds(self) -> float:
            return time.process_time()

    return (api.remote(**options) if options else api.remote)(Plain).remote()


def async_actor(api: Any) -> Any:
    @api.remote
    class Async:
        def __init__(self) -> None:
            self.count = 0

        async def add(self) -> int:
            self.count += 1
            return self.count

        async def cpu_seconds(self) -> float:
            return time.process_time()

    return Async.remote()


# --- one at a time ----------------------------------------------------------------------------


def rate_of_one(api: Any, actor: Any, clock: Clock) -> float:
    before = api.get(actor.add.remote())

    def operation() -> None:
        nonlocal before
        now = api.get(actor.add.remote())
        assert now == before + 1
        before = now

    return clock.rate(operation)


def one_call(api: Any, clock: Clock) -> dict[str, float]:
    return {"one-actor-call": rate_of_one(api, plain_actor(api), clock)}


def one_async_call(api: Any, clock: Clock) -> dict[str, float]:
    return {"one-async-call": rate_of_one(api, async_actor(api), clock)}


def one_call_dask(client: Any, clock: Clock) -> dict[str, float]:
    class Plain:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

    actor = client.submit(Plain, actor=True).result()
    before = actor.add().result()

    def operation() -> None:
        nonlocal before
        now = actor.add().result()
        assert now == before + 1
        before = now

    return {"one-actor-call": clock.rate(operation)}


def one_call_manager(_: Any, clock: Clock) -> dict[str, float]:
    with Manager() as manager:
        counter = manager.Counter()  # type: ignore[attr-defined]
        before = counter.add()

        def operation() -> None:
            nonlocal before
            now = counter.add()
            assert now == before + 1
            before = now

        return {"one-actor-call": clock.rate(operation)}


# --- in flight --------------------------------------------------------------------------------


def rate_in_flight(api: Any, actor: Any, clock: Clock, in_order: bool = True) -> float:
    def operation() -> None:
        counts = api.get([actor.add.remote() for _ in range(IN_FLIGHT)])
        assert len(counts) == IN_FLIGHT
        if in_order:
            assert counts[-1] - counts[0] == IN_FLIGHT - 1

    return clock.rate(operation, IN_FLIGHT)


def calls_in_flight(api: Any, clock: Clock) -> dict[str, float]:
    return {"calls-in-flight": rate_in_flight(api, plain_actor(api), clock)}


def threaded_calls(api: Any, clock: Clock) -> dict[str, float]:
    return {
        "threaded-calls": rate_in_flight(api, plain_actor(api, max_concurrency=16), clock, in_order=False)
    }


def async_calls(api: Any, clock: Clock) -> dict[str, float]:
    return {"async-calls": rate_in_flight(api, async_actor(api), clock, in_order=False)}


def calls_in_flight_dask(client: Any, clock: Clock) -> dict[str, float]:
    class Plain:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

    actor = client.submit(Plain, actor=True).result()

    def operation() -> None:
        futures = [actor.add() for _ in range(IN_FLIGHT)]
        assert len([future.result() for future in futures]) == IN_FLIGHT

    return {"calls-in-flight": clock.rate(operation, IN_FLIGHT)}


# --- CPU time, the bound of calls in flight -----------------------------------------------------


def call_cost(api: Any, clock: Clock) -> dict[str, float]:
    """Each end has one interpreter lock: it makes no more calls a second than its CPU time allows."""
    actors = {
        "plain": plain_actor(api),
        "threaded": plain_actor(api, max_concurrency=16),
        "async": async_actor(api),
    }
    costs = {}
    for kind, actor in actors.items():

        def operation(actor: Any = actor) -> None:
            api.get([actor.add.remote() for _ in range(IN_FLIGHT)])

        clock.repeat(operation, clock.seconds / 12)
        driver, worker = time.process_time(), api.get(actor.cpu_seconds.remote())
        rounds, _ = clock.repeat(operation, clock.seconds / 3)
        worker = api.get(actor.cpu_seconds.remote()) - worker
        driver = time.process_time() - driver
        each = 1e6 / (rounds * IN_FLIGHT)
        costs |= {f"{kind}-driver-cpu": driver * each, f"{kind}-worker-cpu": worker * each}
    return costs


COSTS = tuple(
    Shape(f"{kind}-{end}-cpu", f"CPU time of a call in flight, {kind}, {end}", "µs", less_is_better=True)
    for kind in ("plain", "threaded", "async")
    for end in ("driver", "worker")
)


# --- with a reference as argument -------------------------------------------------------------


def reference_calls(api: Any, clock: Clock) -> dict[str, float]:
    @api.remote
    class Server:
        def echo(self, value: int) -> int:
            return value

    @api.remote
    class Client:
        def __init__(self, servers: list[Any]) -> None:
            self.servers = servers

        def call(self, count: int) -> int:
            argument = api.put(1)
            calls = [server.echo.remote(argument) for server in self.servers for _ in range(count)]
            return sum(api.get(calls))

    servers = [Server.remote() for _ in range(SERVERS)]
    clients = [Client.remote(servers) for _ in range(CLIENTS)]

    def operation() -> None:
        sums = api.get([client.call.remote(TO_EACH) for client in clients])
        assert sums == [SERVERS * TO_EACH] * CLIENTS

    return {"reference-calls": clock.rate(operation, CLIENTS * SERVERS * TO_EACH)}


def row(name: str, title: str, at_least: float, goal: float, measures: dict[str, Measure]) -> Row:
    return Row(name, (Shape(name, title, "1/s", (Demand("ray", at_least, goal),)),), measures)


ROWS = [
    row(
        "one-actor-call",
        "actor calls, one at a time",
        12,
        30,
        {**both(one_call), "dask": one_call_dask, "multiprocessing": one_call_manager},
    ),
    row(
        "calls-in-flight",
        "actor calls, 1000 in flight",
        25,
        60,
        {**both(calls_in_flight), "dask": calls_in_flight_dask},
    ),
    row("threaded-calls", "actor calls, 1000 in flight, 16 threads", 20, 250, both(threaded_calls)),
    row("one-async-call", "async actor calls, one at a time", 12, 30, both(one_async_call)),
    row("async-calls", "async actor calls, 1000 in flight", 20, 150, both(async_calls)),
    Row("call-cost", COSTS, {"aktis": call_cost}),
    row("reference-calls", "actor calls with a reference, 2 to 2", 30, 60, both(reference_calls)),
]
