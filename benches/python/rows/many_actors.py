"""A hundred actors, each a process of its own: created, and heard from."""

import os
import time
from multiprocessing import get_context
from typing import Any

from clock import Clock
from figure import Demand, Shape
from row import Row, both

COUNT = 100
QUICK_COUNT = 10


def create(api: Any, clock: Clock) -> dict[str, float]:
    count = QUICK_COUNT if clock.quick else COUNT

    @api.remote
    class Actor:
        def pid(self) -> int:
            return os.getpid()

    # The first one finds nothing warm, with any peer.
    api.get(Actor.remote().pid.remote())
    begin = time.perf_counter()
    actors = [Actor.remote() for _ in range(count)]
    pids = api.get([actor.pid.remote() for actor in actors])
    elapsed = time.perf_counter() - begin
    assert len(set(pids)) == count, "each actor has a process"
    return {"many-actors": count / elapsed}


def answer(connection: Any) -> None:
    """What each process does."""
    connection.send(os.getpid())
    connection.recv()


def create_processes(_: Any, clock: Clock) -> dict[str, float]:
    count = QUICK_COUNT if clock.quick else COUNT
    context = get_context("fork")
    begin = time.perf_counter()
    connections, processes = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=answer, args=(theirs,))
        process.start()
        connections.append(ours)
        processes.append(process)
    pids = [connection.recv() for connection in connections]
    elapsed = time.perf_counter() - begin
    assert len(set(pids)) == count
    for connection, process in zip(connections, processes):
        connection.send(None)
        process.join()
    return {"many-actors": count / elapsed}


ROWS = [
    Row(
        "many-actors",
        (Shape("many-actors", "100 actors created and answering", "1/s", (Demand("ray", 10, 30),)),),
        {**both(create), "multiprocessing": create_processes},
        timeout=400,
    )
]
