"""References: copies, nesting, and small arrays."""

import copy
import gc

import ray
from outcomes import show, start

start()


@ray.remote(num_cpus=0)
def kinds(value, container):
    return [type(value).__name__, type(container[0]).__name__]


@ray.remote(num_cpus=0)
class Keeper:
    def keep(self, container):
        self.container = container

    def get(self):
        return ray.get(self.container[0])


one = ray.put(1)
show("replaced by its value, or not", lambda: ray.get(kinds.remote(one, [one])))
show("copy", lambda: ray.get(copy.copy(one)))
show("copies are equal", lambda: copy.copy(one) == one and hash(copy.copy(one)) == hash(one))
show("old name", lambda: isinstance(one, ray.ObjectID))
show("hex", lambda: len(one.hex()) == 2 * len(one.binary()))
show("ready", lambda: ray.wait([one])[1])


def kept():
    keeper = Keeper.remote()
    reference = ray.put([1, 2])
    ray.get(keeper.keep.remote([reference]))
    del reference
    gc.collect()
    return ray.get(keeper.get.remote())


def nested():
    outer = ray.put([ray.put("inner")])
    return ray.get(ray.get(outer)[0])


def written():
    import numpy

    ray.get(ray.put(numpy.zeros(3)))[0] = 1


show("kept by an actor", kept)
show("nested", nested)
show("locations", lambda: sorted(ray.experimental.get_object_locations([one])[one]))
show("a small array is read-only", written)
show("put of None", lambda: ray.get(ray.put(None)))
show("a number is no reference", lambda: ray.get(5))
