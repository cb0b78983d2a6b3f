"""Generators of tasks and actors: order, waiting, retries, deaths, cancels, sizes."""

import asyncio
import os
import tempfile
import time

import ray
from outcomes import kinds, show, start

start()
folder = tempfile.mkdtemp()


@ray.remote(num_cpus=0, max_retries=0)
def stream(count, end="", pause=0.0):
    for number in range(count):
        yield number
        time.sleep(pause)
    if end == "raise":
        raise ValueError("at the end")
    if end == "die":
        os._exit(1)
    if end == "return":
        return "ignored"


@ray.remote(num_cpus=0)
class A:
    def numbers(self, count, end=""):
        yield from range(count)
        if end == "raise":
            raise ValueError("at the end")
        if end == "die":
            os._exit(1)

    @ray.method(num_returns="streaming")
    def declared(self, count):
        yield from range(count)


@ray.remote(num_cpus=0)
class B:
    async def later(self, count, end=""):
        for number in range(count):
            await asyncio.sleep(0)
            yield number
        if end == "raise":
            raise ValueError("at the end")


@ray.remote(num_cpus=0)
class C:
    @ray.method(num_returns="streaming")
    async def declared(self, count):
        for number in range(count):
            yield number


@ray.remote(num_cpus=0, max_retries=1)
def dies_once(name):
    path = os.path.join(folder, name)
    first = not os.path.exists(path)
    open(path, "w").close()
    yield "a"
    yield "b"
    if first:
        os._exit(1)
    yield "c"


actors = []


def actor(kind):
    """An actor whose handle is kept until the program ends."""
    actors.append(kind.remote())
    return actors[-1]


@ray.remote(num_cpus=0)
def large():
    for _ in range(3):
        yield b"x" * 500_000


def taken(generator):
    """Values, then the classes of what was raised."""
    found = []
    for reference in generator:
        try:
            found.append(ray.get(reference, timeout=20))
        except Exception as error:
            found.append(kinds(error))
    return found


async def awaited(generator):
    return [await reference async for reference in generator]


def in_part(generator):
    return [ray.get(next(generator)), ray.get(next(generator)), generator.is_finished()]


show("type", lambda: type(stream.remote(1)).__name__)
show("is it a generator", lambda: isinstance(stream.remote(1), ray.ObjectRefGenerator))
show("old name", lambda: isinstance(stream.remote(1), ray.DynamicObjectRefGenerator))
show("raises", lambda: taken(stream.remote(2, "raise")))
show("dies", lambda: taken(stream.remote(2, "die")))
show("returns something", lambda: taken(stream.remote(2, "return")))
show("dies and is retried", lambda: taken(dies_once.remote("once")))
show("actor: raises", lambda: taken(actor(A).numbers.remote(2, "raise")))
show("actor: dies", lambda: taken(actor(A).numbers.remote(2, "die")))
show("actor: async", lambda: taken(actor(B).later.remote(3)))
show("actor: async raises", lambda: taken(actor(B).later.remote(1, "raise")))
show("actor: declared", lambda: taken(actor(A).declared.remote(2)))
show("actor: declared async", lambda: taken(actor(C).declared.remote(2)))
show("async for", lambda: asyncio.run(awaited(stream.remote(3))))
show("in part", lambda: in_part(stream.remote(5)))
show("large items", lambda: [len(ray.get(ref)) for ref in large.remote()])
show(
    "a list is no generator",
    lambda: taken(ray.remote(lambda: [1, 2]).options(num_returns="streaming").remote()),
)
show("a generator with one return", lambda: ray.get(stream.options(num_returns=1).remote(2), timeout=20))
show("a generator with two returns", lambda: ray.get(stream.options(num_returns=2).remote(2), timeout=20))
show("two returns: too few", lambda: ray.get(stream.options(num_returns=3).remote(2), timeout=20))
show("two returns: too many", lambda: ray.get(stream.options(num_returns=1).remote(0), timeout=20))
show("dynamic: length", lambda: len(ray.get(stream.options(num_returns="dynamic").remote(4))))
show("dynamic: raises", lambda: taken(ray.get(stream.options(num_returns="dynamic").remote(2, "raise"))))
show(
    "passed to a task", lambda: ray.get(ray.remote(lambda refs: ray.get(refs)).remote(list(stream.remote(3))))
)
show(
    "an item as an argument",
    lambda: ray.get(ray.remote(lambda value: value + 10).remote(next(stream.remote(3)))),
)
show("len", lambda: len(stream.remote(2)))
show("pickled", lambda: ray.get(ray.remote(lambda generator: 1).remote(stream.remote(2)), timeout=20))
show("put", lambda: bool(ray.put(stream.remote(2))))


def waits():
    generator = stream.remote(2, pause=0.3)
    ready, rest = ray.wait([generator], timeout=10)
    return [len(ready), len(rest), ray.get(next(generator))]


def waits_with_values():
    gate = ray.remote(lambda: time.sleep(60)).options(num_cpus=0).remote()
    generator = stream.remote(1)
    ready, rest = ray.wait([gate, generator], timeout=10)
    ray.cancel(gate, force=True)
    return [ready == [generator], rest == [gate]]


def cancelled():
    generator = stream.remote(1000, pause=0.05)
    ray.get(next(generator))
    ray.cancel(generator)
    found = []
    for reference in generator:
        try:
            ray.get(reference, timeout=20)
        except Exception as error:
            found.append("TaskCancelledError" in kinds(error))
    return found


def killed():
    victim = A.remote()
    generator = victim.numbers.remote(3)
    found = [ray.get(next(generator))]
    ray.kill(victim)
    return [found, len(taken(generator)) >= 1]


def several():
    generators = [stream.remote(3) for _ in range(4)]
    return [ray.get([next(generator) for generator in generators]) for _ in range(3)]


def stopped():
    generator = stream.remote(1)
    found = [ray.get(next(generator))]
    for _ in range(2):
        try:
            next(generator)
        except StopIteration:
            found.append("stop")
    return found


def held(count):
    generator = stream.options(_generator_backpressure_num_objects=count).remote(4)
    return taken(generator)


def with_timeout():
    generator = stream.remote(2, pause=5)
    ray.get(next(generator))
    return ray.wait([generator], timeout=0.1)[0]


def references_left():
    generator = stream.remote(2)
    references = list(generator)
    del generator
    return ray.get(references)


show("waits", waits)
show("waits with values", waits_with_values)
show("wait in vain", with_timeout)
show("cancelled", cancelled)
show("its actor is killed", killed)
show("several", several)
show("stops for good", stopped)
show("references outlive the generator", references_left)
show("back-pressure of 1", lambda: held(1))
show("back-pressure of 3", lambda: held(3))
show("back-pressure without end", lambda: held(-1))
show("iter", lambda: iter(stream.remote(1)) is not None)
show("completed", lambda: ray.get(stream.remote(2).completed(), timeout=20))
show("completed of a death", lambda: ray.get(stream.remote(1, "die").completed(), timeout=20))
