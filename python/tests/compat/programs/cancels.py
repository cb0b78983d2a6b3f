"""Cancelled tasks: dependants, children, actors, generators, what they may do about it."""

import asyncio
import os
import tempfile
import time

import ray
from outcomes import kinds, show, start, wait_until

start()
folder = tempfile.mkdtemp()


def mark(name):
    open(os.path.join(folder, name), "w").close()


def has(name, timeout=15):
    return wait_until(lambda: os.path.exists(os.path.join(folder, name)), timeout)


@ray.remote(num_cpus=0, max_retries=3)
def stuck(name):
    mark(name)
    while True:
        time.sleep(0.05)


@ray.remote(num_cpus=0)
def parent(name):
    return ray.get(stuck.remote(name))


@ray.remote(num_cpus=0)
def catches(name):
    mark(name)
    try:
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        return "caught"


@ray.remote(num_cpus=0)
def cleans(name):
    mark(name)
    try:
        while True:
            time.sleep(0.05)
    finally:
        mark(f"{name} cleaned")


@ray.remote(num_cpus=0)
def same(value):
    return value


@ray.remote(num_cpus=0)
class A:
    def stuck(self, name):
        mark(name)
        time.sleep(3)
        return "done"

    def ok(self):
        return 1


@ray.remote(num_cpus=0)
class B:
    async def stuck(self, name):
        mark(name)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            mark(f"{name} told")
            raise

    async def ok(self):
        return 1


def outcome(reference, timeout=20):
    try:
        return ray.get(reference, timeout=timeout)
    except BaseException as error:
        return "TaskCancelledError" in kinds(error) or kinds(error)


def running(task, name, **options):
    reference = task.remote(name)
    has(name)
    ray.cancel(reference, **options)
    return outcome(reference)


show("a loop", lambda: running(stuck, "loop"))
show("by force", lambda: running(stuck, "by force", force=True))
show("is not retried", lambda: running(stuck.options(max_retries=-1), "not retried"))
show("caught", lambda: running(catches, "caught"))
show("cleaned up", lambda: [running(cleans, "clean"), has("clean cleaned")])


def dependant():
    first = stuck.remote("first")
    second = same.remote(first)
    has("first")
    ray.cancel(first)
    return [outcome(first), outcome(second)]


def child(recursive):
    name = f"child {recursive}"
    reference = parent.remote(name)
    has(name)
    ray.cancel(reference, recursive=recursive)
    return outcome(reference)


def never_placed():
    reference = same.options(num_cpus=100).remote(1)
    ray.cancel(reference)
    return outcome(reference)


def twice():
    reference = stuck.remote("twice")
    has("twice")
    ray.cancel(reference)
    ray.cancel(reference)
    return outcome(reference)


def several_returns():
    references = stuck.options(num_returns=2).remote("several")
    has("several")
    ray.cancel(references[0])
    return [outcome(reference) for reference in references]


def queued_call(kind):
    actor = kind.remote()
    ray.get(actor.ok.remote())
    first = actor.stuck.remote(f"{kind} first")
    has(f"{kind} first")
    second = actor.stuck.remote(f"{kind} second")
    ray.cancel(second)
    return [outcome(second), actor, first]


def sync_queued():
    found, actor, first = queued_call(A)
    return [found, outcome(first), ray.get(actor.ok.remote(), timeout=20)]


def running_sync():
    actor = A.remote()
    reference = actor.stuck.remote("sync")
    has("sync")
    ray.cancel(reference)
    return [outcome(reference), ray.get(actor.ok.remote(), timeout=20)]


def running_async():
    actor = B.remote()
    reference = actor.stuck.remote("async")
    has("async")
    ray.cancel(reference)
    return [outcome(reference), has("async told"), ray.get(actor.ok.remote(), timeout=20)]


def forced_call():
    actor = B.remote()
    reference = actor.stuck.remote("forced call")
    has("forced call")
    ray.cancel(reference, force=True)


def by_an_actor():
    @ray.remote(num_cpus=0)
    class Canceller:
        def cancel(self, references):
            ray.cancel(references[0])

    reference = stuck.remote("by an actor")
    has("by an actor")
    ray.get(Canceller.remote().cancel.remote([reference]))
    return outcome(reference, 5)


def by_a_task():
    reference = stuck.remote("by a task")
    has("by a task")
    ray.get(ray.remote(num_cpus=0)(lambda references: ray.cancel(references[0])).remote([reference]))
    return outcome(reference, 5)


def of_a_task():
    @ray.remote(num_cpus=0)
    def submits():
        return [stuck.remote("of a task")]

    (reference,) = ray.get(submits.remote())
    has("of a task")
    ray.cancel(reference)
    return outcome(reference, 5)


def cancelled_before():
    return ray.get(ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().is_canceled()).remote())


def finished():
    reference = same.remote(5)
    ray.get(reference)
    ray.cancel(reference, force=True)
    return ray.get(reference)


def of_a_put():
    reference = ray.put(1)
    ray.cancel(reference)
    return ray.get(reference)


def waits_in_wait():
    reference = stuck.remote("in wait")
    has("in wait")
    ray.cancel(reference)
    return len(ray.wait([reference], timeout=20)[0])


show("what depends on it", dependant)
show("with children", lambda: child(True))
show("never placed", never_placed)
show("twice", twice)
show("several returns", several_returns)
show("a queued call", sync_queued)
show("a running call", running_sync)
show("a running coroutine", running_async)
show("a coroutine, by force", forced_call)
show("by an actor", by_an_actor)
show("by a task", by_a_task)
show("a task of a task", of_a_task)
show("is it cancelled", cancelled_before)
show("finished, by force", finished)
show("an object that was put", of_a_put)
show("wait sees it", waits_in_wait)
show("a list", lambda: ray.cancel([same.remote(1)]))
