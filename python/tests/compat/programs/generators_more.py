"""Generators as users combine them: with waits, actors, cancelling, retries, nesting, and errors."""

import asyncio
import time

import ray
from outcomes import show, start, wait_until

start()


@ray.remote(num_cpus=0)
def count(number, pause=0.0):
    for item in range(number):
        time.sleep(pause)
        yield item


@ray.remote(num_cpus=0)
def fails_at(position):
    for item in range(position):
        yield item + 0
    raise KeyError("gone")


@ray.remote(num_cpus=0)
def doubled(item):
    return 2 * item


@ray.remote(num_cpus=0)
def nested(number):
    for reference in count.remote(number):
        yield ray.get(reference) * 10


@ray.remote(num_cpus=0)
def of_references(number):
    for item in range(number):
        yield ray.put(item)


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.calls = 0

    def count(self, number):
        self.calls += 1
        for item in range(number):
            yield item + 0

    async def slow(self, number):
        for item in range(number):
            await asyncio.sleep(0.01)
            yield item

    def get(self):
        return self.calls


@ray.remote(num_cpus=0)
class Plain:
    def __init__(self):
        self.calls = 0

    def count(self, number):
        for item in range(number):
            self.calls += 1
            yield item

    def get(self):
        return self.calls


def values(generator):
    return [ray.get(reference) for reference in generator]


def values_until(generator):
    found = []
    try:
        for reference in generator:
            found.append(ray.get(reference))
    except Exception as error:
        found.append(isinstance(error, KeyError))
    return found


def goes_on_after_error():
    generator = fails_at.remote(1)
    found = []
    for reference in generator:
        try:
            found.append(ray.get(reference))
        except KeyError:
            found.append("failed")
    return found


def as_completed():
    generators = [count.remote(3, 0.01) for _ in range(3)]
    found = []
    while generators:
        ready, generators = ray.wait(generators, num_returns=1, timeout=20)
        try:
            found.append(ray.get(next(ready[0])))
            generators.append(ready[0])
        except StopIteration:
            pass
    return sorted(found)


def with_references():
    generator, reference = count.remote(1), doubled.remote(4)
    ready, rest = ray.wait([generator, reference], num_returns=2, timeout=20)
    return [len(ready), len(rest)]


def first_in_time():
    started = time.monotonic()
    ray.get(next(count.remote(3, 0.3)))
    return time.monotonic() - started < 0.9


def pipeline():
    return ray.get([doubled.remote(reference) for reference in count.remote(4)])


async def in_async():
    return [await reference async for reference in count.remote(3)]


async def two_at_once():
    async def collect(generator):
        return [await reference async for reference in generator]

    return await asyncio.gather(collect(count.remote(2)), collect(count.remote(3)))


def retried():
    @ray.remote(num_cpus=0, max_retries=2, retry_exceptions=[ValueError])
    def flaky(path):
        with open(path, "a") as file:
            file.write("x")
        yield 1
        with open(path) as file:
            if len(file.read()) < 2:
                raise ValueError
        yield 2

    import os
    import tempfile

    handle, path = tempfile.mkstemp()
    os.close(handle)
    try:
        return values(flaky.remote(path))
    finally:
        os.unlink(path)


def cancelled():
    generator = count.remote(1000, 0.05)
    ray.get(next(generator))
    ray.cancel(generator)
    found = []
    for reference in generator:
        try:
            ray.get(reference)
        except ray.exceptions.TaskCancelledError:
            found.append("cancelled")
    return found


def state_is_kept():
    actor = Plain.remote()
    values(actor.count.options(num_returns="streaming").remote(3))
    values(actor.count.options(num_returns="streaming").remote(2))
    return ray.get(actor.get.remote())


def two_streams_of_an_actor():
    actor = Plain.remote()
    one, two = (actor.count.options(num_returns="streaming").remote(2) for _ in range(2))
    return [values(two), values(one)]


def options(**given):
    return values(count.options(**given).remote(2))


def wrong(**given):
    count.options(**given).remote(1)


def kept_items():
    references = list(count.remote(3))
    return ray.get(references)


def type_of_items():
    return [type(reference).__name__ for reference in count.remote(1)]


def large():
    @ray.remote(num_cpus=0)
    def blocks():
        for number in range(3):
            yield bytes([number]) * 1_000_000

    return [[len(block), block[0]] for block in values(blocks.remote())]


def finished():
    generator = count.remote(2)
    before = generator.is_finished()
    values(generator)
    return [before, generator.is_finished(), generator.next_ready()]


def ready_in_time():
    generator = count.remote(1)
    return wait_until(generator.next_ready)


show("values", lambda: values(count.remote(3)))
show("none", lambda: values(count.remote(0)))
show("raises at once", lambda: values(fails_at.remote(0)))
show("raises later", lambda: values_until(fails_at.remote(2)))
show("an error is an item", goes_on_after_error)
show("nested", lambda: values(nested.remote(3)))
show("of references", lambda: ray.get(values(of_references.remote(3))))
show("as completed", as_completed)
show("with references", with_references)
show("the first in time", first_in_time)
show("a pipeline", pipeline)
show("async for", lambda: asyncio.run(in_async()))
show("async for of two", lambda: asyncio.run(two_at_once()))
show("retried", retried)
show("cancelled", cancelled)
show("an actor's", lambda: values(Counter.remote().count.remote(3)))
show("an actor's async", lambda: values(Counter.remote().slow.remote(3)))
show("an actor's state", state_is_kept)
show("two of an actor", two_streams_of_an_actor)
show("named", lambda: options(name="counted"))
show("with back-pressure", lambda: options(_generator_backpressure_num_objects=1))
show("wrong back-pressure", lambda: wrong(_generator_backpressure_num_objects=-2))
show("as two returns", lambda: ray.get(list(count.options(num_returns=2).remote(2))))
show("as three returns", lambda: ray.get(count.options(num_returns=3).remote(2)[2]))
show("kept items", kept_items)
show("type of items", type_of_items)
show("large items", large)
show("finished", finished)
show("ready in time", ready_in_time)
show("next with default", lambda: next(count.remote(0), "nothing"))
show("enumerate", lambda: [number for number, _ in enumerate(count.remote(3))])
show("zip", lambda: [ray.get(list(pair)) for pair in zip(count.remote(2), count.remote(2))])
