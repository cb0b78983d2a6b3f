"""Stores of several nodes: what is fetched, what fits, what is spilled."""

import numpy
import ray
from outcomes import show, wait_until
from ray.cluster_utils import Cluster

MEGABYTE = 1_000_000


SMALL = {"num_cpus": 1, "object_store_memory": 80 * MEGABYTE}
FAR = {"num_cpus": 2, "resources": {"far": 1}, "object_store_memory": 100 * MEGABYTE}


def run(situation, function, *nodes, **config):
    """Does it on a cluster of a small head and these nodes."""
    cluster = Cluster()
    cluster.add_node(include_dashboard=False, _system_config=config, **SMALL)
    for node in nodes:
        cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False)
    show(situation, function)
    ray.shutdown()
    cluster.shutdown()


@ray.remote
def make(size):
    return numpy.ones(size, dtype=numpy.uint8)


def local_only():
    held = ray.put(numpy.ones(60 * MEGABYTE, dtype=numpy.uint8))
    view = ray.get(held)
    far = make.options(resources={"far": 1}).remote(50 * MEGABYTE)
    anywhere = len(ray.wait([far], fetch_local=False, timeout=15)[0])
    here = len(ray.wait([far], fetch_local=True, timeout=3)[0])
    del view, held
    later = len(ray.wait([far], fetch_local=True, timeout=15)[0])
    return [anywhere, here, later]


def all_are_fetched():
    near = ray.put(1)
    far = [make.options(resources={"far": 0.1}).remote(10 * MEGABYTE) for _ in range(2)]
    ray.wait(far, num_returns=2, fetch_local=False)
    ready, _ = ray.wait([near, *far], num_returns=1, fetch_local=True)
    me = ray.get_runtime_context().get_node_id()

    def here():
        found = ray.experimental.get_object_locations(far)
        return all(me in found[ref]["node_ids"] for ref in far)

    return [len(ready), wait_until(here, 3)]


def full_of_views():
    held = [ray.put(numpy.ones(20 * MEGABYTE, dtype=numpy.uint8)) for _ in range(3)]
    views = ray.get(held)
    more = ray.put(numpy.ones(40 * MEGABYTE, dtype=numpy.uint8))
    return [int(ray.get(more).sum()) // MEGABYTE, sum(int(view[0]) for view in views)]


run("wait for what has no room here", local_only, FAR, automatic_object_spilling_enabled=False)
run("wait fetches all", all_are_fetched, FAR)
run("a store full of views", full_of_views)
