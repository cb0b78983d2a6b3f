"""A small object store: what is spilled and comes back, what waits for room, and what does not fit."""

import gc
import time

import numpy
import ray
from outcomes import show, start, wait_until

MEGABYTE = 1_000_000
STORE = 100 * MEGABYTE
start(object_store_memory=STORE)


def block(size=20, fill=1):
    return numpy.full(size * MEGABYTE, fill, dtype=numpy.uint8)


@ray.remote
def make(size, fill=1):
    return block(size, fill)


@ray.remote
def total(*values):
    return sum(int(value[0]) * len(value) for value in values) // MEGABYTE


@ray.remote(num_cpus=0)
def nested(references):
    return sum(int(ray.get(reference)[0]) for reference in references)


@ray.remote(num_cpus=0)
def generates(count):
    for number in range(count):
        yield block(20, number)


@ray.remote(num_cpus=0)
class Keeper:
    def __init__(self):
        self.references = []

    def put(self, count):
        self.references += [ray.put(block(20, number)) for number in range(count)]
        return len(self.references)

    def get(self, number):
        return int(ray.get(self.references[number])[0])

    def refs(self):
        return self.references


def free():
    return ray.available_resources().get("object_store_memory", 0)


def puts(count):
    references = [ray.put(block(20, number)) for number in range(count)]
    return [int(ray.get(reference)[0]) for reference in references]


def puts_backwards(count):
    references = [ray.put(block(20, number)) for number in range(count)]
    return [int(ray.get(reference)[0]) for reference in reversed(references)]


def twice(count):
    references = [ray.put(block(20, number)) for number in range(count)]
    return [sum(int(ray.get(reference)[0]) for reference in references) for _ in range(2)]


def results(count):
    return [int(value[0]) for value in map(ray.get, [make.remote(20, number) for number in range(count)])]


def arguments():
    references = [ray.put(block(20)) for _ in range(8)]
    return ray.get([total.remote(reference) for reference in references])


def many_arguments():
    references = [ray.put(block(15)) for _ in range(12)]
    return [ray.get(total.remote(*references[first : first + 4])) for first in (0, 4, 8)]


def arguments_of_tasks():
    made = [make.remote(20, 2) for _ in range(6)]
    return ray.get([total.remote(reference) for reference in made])


def of_nested():
    return ray.get(nested.remote([ray.put(block(20, number)) for number in range(8)]))


def streamed(count):
    return [int(ray.get(reference)[0]) for reference in generates.remote(count)]


def kept_stream(count):
    references = list(generates.remote(count))
    return [int(ray.get(reference)[0]) for reference in references]


def by_an_actor():
    keeper = Keeper.remote()
    ray.get(keeper.put.remote(8))
    return [ray.get(keeper.get.remote(number)) for number in (0, 7, 3)]


def from_an_actor():
    keeper = Keeper.remote()
    ray.get(keeper.put.remote(8))
    return [int(ray.get(reference)[0]) for reference in ray.get(keeper.refs.remote())]


def views_stay():
    view = ray.get(ray.put(block(20, 9)))
    others = [ray.put(block(20, number)) for number in range(8)]
    return [int(view[0]), int(view[-1]), int(ray.get(others[0])[0])]


def freed():
    gc.collect()
    return wait_until(lambda: free() > 0.9 * STORE, 20)


def waits_with_fetch():
    references = [make.remote(20) for _ in range(8)]
    ready, rest = ray.wait(references, num_returns=8, timeout=60)
    return [len(ready), len(rest)]


def shuffled():
    made = [make.remote(10, number) for number in range(10)]
    return [ray.get(total.remote(*made[start::5])) for start in range(5)]


def small_beside_large():
    small = [ray.put(number) for number in range(100)]
    large = [ray.put(block(20)) for _ in range(8)]
    return [sum(ray.get(small)), len(ray.get(large[0])) // MEGABYTE]


def a_second_reader():
    reference = ray.put(block(20, 3))
    others = [ray.put(block(20)) for _ in range(8)]
    time.sleep(0.2)
    return [ray.get(total.remote(reference)), int(ray.get(reference)[0]), len(others)]


def read_only():
    reference = ray.put(block(20))
    others = [ray.put(block(20)) for _ in range(8)]
    ray.get(reference)[0] = 1
    return len(others)


show("puts", lambda: puts(10))
show("puts, backwards", lambda: puts_backwards(10))
show("puts, twice", lambda: twice(8))
show("freed after puts", freed)
show("results", lambda: results(10))
show("arguments", arguments)
show("many arguments", many_arguments)
show("arguments of tasks", arguments_of_tasks)
show("nested", of_nested)
show("streamed", lambda: streamed(8))
show("a kept stream", lambda: kept_stream(8))
show("put by an actor", by_an_actor)
show("put by an actor, read here", from_an_actor)
show("views stay", views_stay)
show("wait", waits_with_fetch)
show("shuffled", shuffled)
show("small beside large", small_beside_large)
show("a second reader", a_second_reader)
show("restored ones are read-only", read_only)
show("freed in the end", freed)
