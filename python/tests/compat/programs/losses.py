"""Values that are lost with their nodes: what is reconstructed, and what fails with which exception."""

import numpy
import ray
from outcomes import show
from ray.cluster_utils import Cluster

cluster = Cluster()
cluster.add_node(num_cpus=2, resources={"head": 1}, object_store_memory=80_000_000, include_dashboard=False)
ray.init(address=cluster.address, log_to_driver=False)


def far_node():
    return cluster.add_node(num_cpus=2, resources={"far": 2}, object_store_memory=80_000_000)


@ray.remote(resources={"far": 0.1}, num_cpus=0)
def make(size=1_000_000):
    return numpy.ones(size, dtype=numpy.uint8)


@ray.remote(resources={"far": 0.1}, num_cpus=0)
def put_there():
    return [ray.put(numpy.ones(1_000_000, dtype=numpy.uint8))]


@ray.remote(num_cpus=0)
def total(value):
    return int(value.sum())


@ray.remote(resources={"far": 0.1}, num_cpus=0)
class Maker:
    def make(self):
        return numpy.ones(1_000_000, dtype=numpy.uint8)


@ray.remote(num_cpus=0)
class Reader:
    def __init__(self, value):
        self.sum = int(value.sum())

    def get(self):
        return self.sum


node = far_node()


def lose_node():
    """The far node dies, and another one comes."""
    global node
    cluster.remove_node(node, allow_graceful=False)
    node = far_node()


def ready(reference):
    ray.wait([reference], fetch_local=False, timeout=20)
    return reference


def reconstructed():
    reference = ready(make.remote())
    lose_node()
    return int(ray.get(reference, timeout=40).sum())


def reconstructed_for_a_task():
    reference = ready(make.remote())
    lose_node()
    return ray.get(total.remote(reference), timeout=40)


def chain():
    @ray.remote(resources={"far": 0.1}, num_cpus=0)
    def twice(value):
        return value * 2

    reference = ready(twice.remote(twice.remote(make.remote())))
    lose_node()
    return int(ray.get(reference, timeout=40).sum())


def no_retries():
    reference = ready(make.options(max_retries=0).remote())
    lose_node()
    return reference


def cancelled():
    reference = ready(make.remote())
    ray.cancel(reference)
    lose_node()
    return int(ray.get(reference, timeout=40).sum())


def by_an_actor():
    maker = Maker.remote()
    reference = ready(maker.make.remote())
    lose_node()
    return int(ray.get(reference, timeout=40).sum())


def by_an_actor_that_restarts():
    maker = Maker.options(max_restarts=-1, max_task_retries=-1).remote()
    reference = ready(maker.make.remote())
    lose_node()
    return int(ray.get(reference, timeout=40).sum())


def put_by_a_dead_one():
    (reference,) = ray.get(put_there.remote())
    lose_node()
    return int(ray.get(reference, timeout=40).sum())


def constructor():
    reference = ready(make.options(max_retries=0).remote())
    lose_node()
    ray.get(Reader.remote(reference).get.remote(), timeout=40)


show("reconstructed", reconstructed)
show("reconstructed for a task", reconstructed_for_a_task)
show("a chain", chain)
lost = no_retries()
show("without retries", lambda: ray.get(lost, timeout=40))
show("a task that reads it", lambda: ray.get(total.remote(lost), timeout=40))
show("wait for it", lambda: len(ray.wait([lost], timeout=20)[0]))
show("the constructor of an actor", constructor)
show("cancelled after it was done", cancelled)
show("of a dead actor", by_an_actor)
show("of an actor that restarts", by_an_actor_that_restarts)
show("put by a dead task", put_by_a_dead_one)
ray.shutdown()
cluster.shutdown()
