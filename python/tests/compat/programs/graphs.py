"""Lazy graphs of tasks and calls."""

import ray
from outcomes import show, start
from ray.dag import InputNode, MultiOutputNode

start()


@ray.remote(num_cpus=0)
def add(left, right=1):
    return left + right


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, by):
        self.value += by
        return self.value


show("tasks", lambda: ray.get(add.bind(add.bind(1), add.bind(2, 3)).execute()))
with InputNode() as given:
    whole = add.bind(given, given)
    parts = add.bind(given[0], given.more)
show("an input", lambda: ray.get(whole.execute(2)))
show("several inputs", lambda: ray.get(parts.execute(2, more=5)))
with InputNode() as given:
    counter = Counter.bind(0)
    several = MultiOutputNode([counter.add.bind(given), counter.add.bind(10)])
show("several outputs", lambda: ray.get(several.execute(1)))
handle = Counter.remote(5)
show("a handle", lambda: [ray.get(handle.add.bind(1).execute()) for _ in range(2)])
