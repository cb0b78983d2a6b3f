"""Streams: items, errors, ends."""

import os
import tempfile

import ray
from outcomes import show, start, wait_until

start()
folder = tempfile.mkdtemp()


@ray.remote(num_cpus=0, max_retries=0)
def numbers(count, fails=False):
    yield from range(count)
    if fails:
        raise ValueError("after some items")


@ray.remote(num_cpus=0)
class A:
    def numbers(self, count):
        yield from range(count)

    async def later(self, count):
        for number in range(count):
            yield number


@ray.remote(num_cpus=0, _generator_backpressure_num_objects=1)
def held(name):
    for number in range(3):
        open(os.path.join(folder, f"{name}{number}"), "w").close()
        yield number


def items(generator):
    found = []
    for reference in generator:
        try:
            found.append(ray.get(reference))
        except Exception as error:
            found.append(sorted({"ValueError"} & {kind.__name__ for kind in type(error).__mro__}))
    return found


def ended(generator):
    items(generator)
    return [generator.next_ready(), generator.is_finished()]


def completed(generator):
    items(generator)
    return ray.get(generator.completed())


show("items", lambda: items(numbers.remote(3)))
show("no items", lambda: items(numbers.remote(0)))
show("raises after items", lambda: items(numbers.remote(2, True)))
show("of an actor", lambda: items(A.remote().numbers.remote(3)))
show("of an async method", lambda: items(A.remote().later.remote(3)))
show("after the end", lambda: ended(numbers.remote(2)))
show("completed", lambda: completed(numbers.remote(2)))
show("completed of a failure", lambda: completed(numbers.remote(2, True)), "after some items")
show("get of a generator", lambda: bool(ray.get(numbers.remote(1))))
show("next after the end", lambda: [next(generator) for generator in [numbers.remote(0)]])
show("dynamic", lambda: [ray.get(ref) for ref in ray.get(numbers.options(num_returns="dynamic").remote(3))])

looked = held.remote("looked")
show("wait for a generator", lambda: len(ray.wait([looked], timeout=20)[0]))
show("looking takes nothing", lambda: wait_until(lambda: os.path.exists(f"{folder}/looked1"), 1))
show("taking lets it go on", lambda: ray.get(next(looked)))
show("it went on", lambda: wait_until(lambda: os.path.exists(f"{folder}/looked1")))
dropped = held.remote("dropped")
ray.get(next(dropped))
del dropped
show("dropped: it runs to its end", lambda: wait_until(lambda: os.path.exists(f"{folder}/dropped2")))
show("no back-pressure of 0", lambda: held.options(_generator_backpressure_num_objects=0).remote("x"))
