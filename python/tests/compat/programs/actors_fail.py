"""Actors that fail: constructors, exits, restarts, what is pending then."""

import asyncio
import os
import signal
import sys
import tempfile
import time

import ray
from outcomes import is_alive, show, start, wait_until

start()
folder = tempfile.mkdtemp()


def mark(name):
    with open(os.path.join(folder, name), "a") as file:
        file.write("x")


def marks(name):
    try:
        return os.path.getsize(os.path.join(folder, name))
    except FileNotFoundError:
        return 0


@ray.remote(num_cpus=0)
class A:
    def __init__(self, way="", name=""):
        self.name = name
        if name:
            mark(name)
        if way == "raise":
            raise KeyError("in the constructor")
        if way == "exit":
            sys.exit(0)
        if way == "die":
            os._exit(1)
        if way == "exit_actor":
            ray.actor.exit_actor()

    def ok(self):
        return 1

    def pid(self):
        return os.getpid()

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds

    def leave(self):
        ray.actor.exit_actor()
        mark("behind")

    def exit(self, code=0):
        sys.exit(code)

    def die(self):
        os._exit(1)

    def segfault(self):
        os.kill(os.getpid(), signal.SIGSEGV)

    def fail(self):
        raise RuntimeError("the method")

    def base(self):
        raise BaseException("a base exception")

    def unpicklable(self):
        error = RuntimeError("cannot travel")
        error.lock = __import__("threading").Lock()
        raise error


@ray.remote(num_cpus=0)
class B:
    async def ok(self):
        return 1

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def leave(self):
        ray.actor.exit_actor()

    async def fail(self):
        raise RuntimeError("the method")

    async def die(self):
        os._exit(1)


@ray.remote(num_cpus=0)
class Shut:
    def __init__(self, name):
        self.name = name

    def ok(self):
        return 1

    def leave(self):
        ray.actor.exit_actor()

    def __ray_shutdown__(self):
        mark(self.name)


def pending(actor, end, method="sleep"):
    """What becomes of calls that wait when an actor ends."""
    ray.get(actor.ok.remote())
    running = getattr(actor, method).remote(60)
    queued = actor.ok.remote()
    end(actor)
    kinds = []
    for reference in (running, queued):
        try:
            kinds.append(ray.get(reference, timeout=20))
        except Exception as error:
            kinds.append(isinstance(error, ray.exceptions.RayActorError))
    return kinds


def attributes(actor):
    try:
        ray.get(actor.ok.remote(), timeout=20)
    except ray.exceptions.ActorDiedError as error:
        return [error.actor_id == actor._actor_id.hex(), error.actor_init_failed]


for way in ("raise", "exit", "die", "exit_actor"):
    show(
        f"constructor: {way}",
        lambda given=way: ray.get(A.remote(given).ok.remote(), timeout=20),
        "in the constructor",
    )
show("constructor: raise, attributes", lambda: attributes(A.remote("raise")))
show("constructor: die, attributes", lambda: attributes(A.remote("die")))
show("constructor: ready", lambda: ray.get(A.remote("raise").__ray_ready__.remote(), timeout=20))
restarted = A.options(max_restarts=2).remote("die", "dies")
show("constructor: dies three times", lambda: ray.get(restarted.ok.remote(), timeout=30))
show("constructor: tries", lambda: marks("dies"))
raised = A.options(max_restarts=2).remote("raise", "raises")
show("constructor: raises, no restart", lambda: ray.get(raised.ok.remote(), timeout=30))
show("constructor: raises, tries", lambda: marks("raises"))
show("kill with calls", lambda: pending(A.remote(), ray.kill))
show("kill an async actor with calls", lambda: pending(B.remote(), ray.kill))
show(
    "killed: attributes",
    lambda: (lambda actor: [ray.get(actor.ok.remote()), ray.kill(actor), attributes(actor)])(A.remote()),
)
show("exit: 0", lambda: ray.get(A.remote().exit.remote(), timeout=20))
show("exit: 3", lambda: ray.get(A.remote().exit.remote(3), timeout=20))
show("exit_actor: async", lambda: ray.get(B.remote().leave.remote(), timeout=20), "INTENDED_USER_EXIT")
show("exit_actor: no code behind it", lambda: [marks("behind")])
show("segfault", lambda: ray.get(A.remote().segfault.remote(), timeout=20), "worker process has died")
show("async: dies", lambda: ray.get(B.remote().die.remote(), timeout=20), "worker process has died")
show("a method raises", lambda: ray.get(A.remote().fail.remote()), "the method")
show("an async method raises", lambda: ray.get(B.remote().fail.remote()), "the method")
show("a base exception", lambda: ray.get(A.remote().base.remote(), timeout=20), "a base exception")
show("unpicklable", lambda: ray.get(A.remote().unpicklable.remote(), timeout=20))


def after(way):
    actor = A.remote()
    try:
        ray.get(getattr(actor, way).remote(), timeout=20)
    except BaseException:
        pass
    return ray.get(actor.ok.remote(), timeout=20)


for way in ("fail", "base", "unpicklable", "exit", "die", "leave"):
    show(f"after {way}", lambda given=way: after(given))


def restart(**options):
    actor = A.options(max_restarts=1, **options).remote()
    first = ray.get(actor.pid.remote())
    ray.kill(actor, no_restart=False)
    return wait_until(lambda: answer(actor) not in (None, first))


def answer(actor):
    try:
        return ray.get(actor.pid.remote(), timeout=20)
    except ray.exceptions.RayActorError:
        return None


show("kill with a restart", restart)
counted = A.options(max_restarts=1, max_task_retries=1).remote()
first = ray.get(counted.pid.remote())
os.kill(first, signal.SIGKILL)
show("restarted", lambda: ray.get(counted.pid.remote(), timeout=20) != first)
second = answer(counted)
os.kill(second, signal.SIGKILL)
show("no restart left", lambda: ray.get(counted.pid.remote(), timeout=20))
endless = A.options(max_restarts=-1, max_task_retries=-1).remote()
for _ in range(3):
    os.kill(ray.get(endless.pid.remote()), signal.SIGKILL)
show("restarts without end", lambda: ray.get(endless.ok.remote(), timeout=30))
gentle = A.options(max_restarts=1).remote()
ray.get(gentle.ok.remote())
show("terminate", lambda: ray.get(gentle.__ray_terminate__.remote(), timeout=20))
show("after terminate", lambda: ray.get(gentle.ok.remote(), timeout=20))
leaves = A.options(max_restarts=3).remote()
show("exit_actor is for good", lambda: ray.get(leaves.leave.remote(), timeout=20), "INTENDED_USER_EXIT")
show("exit_actor: later", lambda: ray.get(leaves.ok.remote(), timeout=20))


def shut(name, end):
    actor = Shut.remote(name)
    ray.get(actor.ok.remote())
    end(actor)
    del actor
    wait_until(lambda: marks(name) > 0, 5)
    return marks(name)


show("__ray_shutdown__: last handle", lambda: shut("last", lambda actor: None))
show("__ray_shutdown__: exit_actor", lambda: shut("left", lambda actor: actor.leave.remote()))
show(
    "__ray_shutdown__: terminate", lambda: shut("terminated", lambda actor: actor.__ray_terminate__.remote())
)


def slow_then_drop():
    actor = A.remote()
    pid = ray.get(actor.pid.remote())
    reference = actor.sleep.remote(0.5)
    del actor
    return [ray.get(reference), wait_until(lambda: not is_alive(pid))]


show("dropped while it works", slow_then_drop)
show("created by a task", lambda: ray.get(ray.remote(lambda: ray.get(A.remote().ok.remote())).remote()))


@ray.remote(num_cpus=0)
def creates():
    return [A.remote()]


show("returned by a task", lambda: ray.get(ray.get(creates.remote())[0].ok.remote(), timeout=20))
limited = A.options(max_pending_calls=1).remote()
ray.get(limited.ok.remote())
first_call = limited.sleep.remote(1)
show("too many pending calls", lambda: [limited.ok.remote() for _ in range(3)] and None)
show("the first of them", lambda: ray.get(first_call))
