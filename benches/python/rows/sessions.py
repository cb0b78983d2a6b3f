"""A session's life: import, start, first task, end; and what an idle worker costs."""

import os
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

from clock import Clock, milliseconds
from figure import Demand, Shape
from peers import open_session
from row import Row, both

FIGURES = ("import", "init", "first-task", "shutdown")

#: What a program imports; `init` does not pay for it.
MODULES = {"aktis": "aktis", "ray": "ray", "dask": "distributed", "multiprocessing": "multiprocessing.pool"}


def life(peer: str, first_task: Any) -> Any:
    def measure(_: Any, __: Clock) -> dict[str, float]:
        imported = milliseconds_to_import(MODULES[peer])
        import_module(MODULES[peer])
        opened: list[Any] = []
        started = milliseconds(lambda: opened.append(open_session(peer)))
        [session] = opened
        ran = milliseconds(lambda: first_task(session.api))
        ended = milliseconds(session.close)
        return dict(zip(FIGURES, (imported, started, ran, ended)))

    return measure


def milliseconds_to_import(module: str) -> float:
    """In an interpreter that has imported nothing else."""
    program = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    return float(output) * 1000


def first_task(api: Any) -> None:
    @api.remote
    def empty() -> bytes:
        return b"ok"

    assert api.get(empty.remote()) == b"ok"


def first_task_dask(client: Any) -> None:
    assert client.submit(lambda: b"ok", pure=False).result() == b"ok"


def answer() -> bytes:
    """What the pool runs."""
    return b"ok"


def first_task_pool(pool: Any) -> None:
    assert pool.apply(answer) == b"ok"


# --- memory -----------------------------------------------------------------------------------


def unique_megabytes(pid: int) -> float:
    """What would be free if the process ended: the pages that it shares with nobody."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        kilobytes = sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
    return kilobytes * 1024 / 1e6


def mean_of(pids: set[int]) -> dict[str, float]:
    assert os.getpid() not in pids, "a worker is a process of its own"
    # Whatever workers do after a task, they have done it then.
    time.sleep(1)
    return {"idle-worker": sum(map(unique_megabytes, pids)) / len(pids)}


def idle_worker(api: Any, _: Clock) -> dict[str, float]:
    @api.remote
    def pid() -> int:
        return os.getpid()

    return mean_of(set(api.get([pid.remote() for _ in range(100)])))


def idle_worker_dask(client: Any, _: Clock) -> dict[str, float]:
    return mean_of(set(client.run(os.getpid).values()))


def idle_worker_pool(pool: Any, _: Clock) -> dict[str, float]:
    return mean_of({pool.apply(os.getpid) for _ in range(100)})


ROWS = [
    Row(
        "session",
        (
            Shape("import", "import", "ms", less_is_better=True),
            Shape("init", "init", "ms", (Demand("", 100, 30),), less_is_better=True),
            Shape("first-task", "first task", "ms", (Demand("", 50),), less_is_better=True),
            Shape("shutdown", "shutdown", "ms", (Demand("", 200),), less_is_better=True),
        ),
        {
            "aktis": life("aktis", first_task),
            "ray": life("ray", first_task),
            "dask": life("dask", first_task_dask),
            "multiprocessing": life("multiprocessing", first_task_pool),
        },
        opens_session=True,
    ),
    Row(
        "idle-worker",
        (
            Shape(
                "idle-worker",
                "unique memory of an idle worker",
                "MB",
                (Demand("ray", 0.25),),
                less_is_better=True,
            ),
        ),
        {**both(idle_worker), "dask": idle_worker_dask, "multiprocessing": idle_worker_pool},
    ),
]
