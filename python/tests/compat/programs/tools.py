"""Pools and queues."""

import os

import ray
from outcomes import show, start
from ray.util import ActorPool
from ray.util.queue import Empty, Full, Queue

start()


@ray.remote(num_cpus=0)
class A:
    def double(self, value):
        if value == "die":
            os._exit(1)
        if value == "raise":
            raise ValueError("no")
        return 2 * value


def call(actor, value):
    return actor.double.remote(value)


pool = ActorPool([A.remote(), A.remote()])
show("map", lambda: list(pool.map(call, range(5))))
show("map unordered", lambda: sorted(pool.map_unordered(call, range(5))))
show("nothing to get", lambda: pool.get_next())
pool.submit(call, "raise")
show("a call raises", pool.get_next)
show("it is used again", lambda: len(pool._idle_actors))
pool.submit(call, "die")
show("an actor dies", pool.get_next)
show("it is not used again", lambda: len(pool._idle_actors))
show("the others go on", lambda: list(pool.map(call, range(3))))
queue = Queue(maxsize=2)
show("empty", queue.empty)
queue.put(1)
queue.put(2)
show("full", queue.full)


def refused(function, kind):
    try:
        function()
    except kind:
        return True
    return False


show("put refused", lambda: refused(lambda: queue.put(3, block=False), Full))
show("get", lambda: [queue.get(), queue.get()])
show("get refused", lambda: refused(queue.get_nowait, Empty))
show("batch", lambda: queue.put_nowait_batch([1, 2]))
show("batch of two", lambda: queue.get_nowait_batch(2))
show("its actor", lambda: ray.get(queue.actor.empty.remote()))
actor = queue.actor
queue.shutdown()
show("shut down", lambda: queue.actor)
show("its actor afterwards", lambda: ray.get(actor.empty.remote()))
