"""Cancelled tasks and calls."""

import os
import tempfile
import time

import ray
from outcomes import show, start, wait_until

start()
folder = tempfile.mkdtemp()


@ray.remote(num_cpus=1)
def stuck(name):
    open(os.path.join(folder, name), "w").close()
    time.sleep(60)


@ray.remote(num_cpus=0)
class A:
    async def stuck(self):
        import asyncio

        open(os.path.join(folder, "async"), "w").close()
        await asyncio.sleep(60)


@ray.remote(num_cpus=0)
def quick():
    return 1


def begun(name):
    return wait_until(lambda: os.path.exists(os.path.join(folder, name)))


running = stuck.remote("running")
show("begun", lambda: begun("running"))
time.sleep(1)
ray.cancel(running)
show("running", lambda: ray.get(running, timeout=20), "was cancelled")
forced = stuck.remote("forced")
show("begun again", lambda: begun("forced"))
ray.cancel(forced, force=True)
show("forced", lambda: ray.get(forced, timeout=20))
queued = stuck.options(num_cpus=100).remote("queued")
ray.cancel(queued)
show("queued", lambda: ray.get(queued, timeout=20))
finished = quick.remote()
ray.get(finished)
ray.cancel(finished)
show("finished", lambda: ray.get(finished))
actor = A.remote()
waiting = actor.stuck.remote()
show("begun in an actor", lambda: begun("async"))
ray.cancel(waiting)
show("async call", lambda: ray.get(waiting, timeout=20))
show("no reference", lambda: ray.cancel(3))
