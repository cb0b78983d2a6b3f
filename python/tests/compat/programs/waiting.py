"""wait and get: order, numbers, timeouts, wrong arguments."""

import ray
from outcomes import show, start

start()


@ray.remote(num_cpus=0)
def same(value):
    return value


@ray.remote(num_cpus=0)
class Gate:
    def __init__(self):
        import asyncio

        self.event = asyncio.Event()

    async def wait(self):
        await self.event.wait()
        return "open"

    async def open(self):
        self.event.set()


gate = Gate.remote()
closed = gate.wait.remote()
ready = [same.remote(number) for number in range(3)]
ray.get(ready)


def positions(references, **options):
    found, rest = ray.wait(references, **options)
    return [[references.index(item) for item in part] for part in (found, rest)]


show("one of three", lambda: positions(ready))
show("two of three", lambda: positions(ready, num_returns=2))
show("one is closed", lambda: positions([closed, *ready], num_returns=3))
show("more than are ready", lambda: positions([closed, *ready], num_returns=4, timeout=0.2))
show("nothing", lambda: ray.wait([]))
show("twice the same", lambda: ray.wait([ready[0], ready[0]]))
show("no list", lambda: ray.wait(ready[0]))
show("no reference", lambda: ray.wait([1]))
show("too many", lambda: ray.wait(ready, num_returns=4))
show("none", lambda: ray.wait(ready, num_returns=0))
show("a negative timeout", lambda: ray.wait(ready, timeout=-1))
show("get in time", lambda: ray.get(closed, timeout=0.2))
show("get at once", lambda: ray.get(closed, timeout=0))
show("get of a tuple", lambda: ray.get(tuple(ready)))
ray.get(gate.open.remote())
show("get when it is open", lambda: ray.get(closed))


async def _awaited():
    return await same.remote(5)


show("awaited", lambda: __import__("asyncio").run(_awaited()))
show("future", lambda: same.remote(6).future().result())
