"""What the state API says of tasks that were cancelled, by when that was."""

import tempfile
import time
from pathlib import Path

import ray
from outcomes import show, start, wait_until
from ray.util.state import list_tasks

start(dashboard=True)


@ray.remote(num_cpus=0)
def runs(begun):
    begun.touch()
    for _ in range(600):
        time.sleep(0.1)


@ray.remote(num_cpus=0)
def catches(begun):
    try:
        begun.touch()
        for _ in range(600):
            time.sleep(0.1)
    except KeyboardInterrupt:
        return 1


@ray.remote(num_cpus=0)
def done():
    return 1


@ray.remote(num_cpus=3)
def never():
    pass


def row(name):
    return next((row for row in list_tasks(detail=True) if row.name == name), None)


def has_state(name, *states):
    return lambda: row(name) is not None and row(name).state in states


def state(name):
    wait_until(has_state(name, "FINISHED", "FAILED"), 20)
    return row(name).state


def cancelled(function, name):
    with tempfile.TemporaryDirectory() as folder:
        begun = Path(folder, "begun")
        reference = function.remote(begun)
        # Its row says that it runs before its first line does.
        wait_until(begun.exists, 20)
        ray.cancel(reference)
        try:
            ray.get(reference, timeout=20)
        except (ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError):
            pass
        return state(name)


def cancelled_after():
    reference = done.remote()
    ray.get(reference)
    ray.cancel(reference)
    return state("done")


def cancelled_before():
    reference = never.remote()
    ray.cancel(reference)
    try:
        ray.get(reference, timeout=20)
    except ray.exceptions.TaskCancelledError:
        pass
    return [state("never"), row("never").error_type]


show("while it runs", lambda: cancelled(runs, "runs"))
show("and it goes on", lambda: cancelled(catches, "catches"))
show("after it was done", cancelled_after)
show("before it ran", cancelled_before)
