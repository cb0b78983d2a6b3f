"""Ways in which actors end, and what callers, queued calls, streams and names see of that."""

import asyncio
import os
import signal
import sys
import threading
import time

import ray
from outcomes import is_alive, show, start, wait_until

start()
INTENDED = "INTENDED_USER_EXIT"
KILLED = "The actor is dead because it was killed by `ray.kill`"
CRASHED = "The actor is dead because its worker process has died"


@ray.remote(num_cpus=0)
class Actor:
    def __init__(self, path=None):
        self.path = path

    def pid(self):
        return os.getpid()

    def exits(self):
        ray.actor.exit_actor()
        return 1

    def system_exit(self, code=0):
        sys.exit(code)

    def hard_exit(self, code=0):
        os._exit(code)

    def aborts(self):
        os.kill(os.getpid(), signal.SIGABRT)

    def slow(self, seconds=0.5):
        time.sleep(seconds)
        return 2

    def exits_in_thread(self):
        def run():
            try:
                ray.actor.exit_actor()
            except BaseException as error:
                self.seen = type(error).__name__

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return getattr(self, "seen", None)

    def catches(self):
        try:
            ray.actor.exit_actor()
        except BaseException:
            pass
        return 3

    def at_exit(self, path):
        import atexit

        atexit.register(lambda: open(path, "w").close())

    def items(self):
        yield 1
        ray.actor.exit_actor()

    def items_and_death(self):
        yield 1
        os._exit(1)


@ray.remote(num_cpus=0)
class Async:
    async def pid(self):
        return os.getpid()

    async def exits(self):
        ray.actor.exit_actor()

    async def waits(self):
        await asyncio.sleep(60)

    async def raises(self):
        raise SystemExit


def end(actor, method, *arguments):
    pid = ray.get(actor.pid.remote())
    reference = getattr(actor, method).remote(*arguments)
    try:
        return [ray.get(reference, timeout=20), is_alive(pid)]
    finally:
        wait_until(lambda: not is_alive(pid), 3)


def later_calls(method):
    actor = Actor.remote()
    try:
        ray.get(getattr(actor, method).remote(), timeout=20)
    except Exception:
        pass
    return ray.get(actor.pid.remote(), timeout=20)


def queued_calls(method):
    actor = Actor.remote()
    ray.get(actor.pid.remote())
    getattr(actor, method).remote()
    queued = [actor.slow.remote(0) for _ in range(3)]
    return ray.get(queued[2], timeout=20)


def with_handlers(end_it, path):
    actor = Actor.remote()
    ray.get(actor.at_exit.remote(path))
    pid = ray.get(actor.pid.remote())
    end_it(actor)
    gone = wait_until(lambda: not is_alive(pid), 10)
    found = os.path.exists(path)
    if found:
        os.unlink(path)
    return [gone, found]


def killed_while_it_runs():
    actor = Actor.remote()
    ray.get(actor.pid.remote())
    reference = actor.slow.remote(30)
    time.sleep(0.3)
    ray.kill(actor)
    return ray.get(reference, timeout=20)


def killed_twice():
    actor = Actor.remote()
    ray.get(actor.pid.remote())
    ray.kill(actor)
    ray.kill(actor)
    return ray.get(actor.pid.remote(), timeout=20)


def killed_before_it_is_there():
    actor = Actor.options(resources={"absent": 1}).remote()
    reference = actor.pid.remote()
    ray.kill(actor)
    return ray.get(reference, timeout=20)


def killed_to_restart():
    actor = Actor.options(max_restarts=1).remote()
    before = ray.get(actor.pid.remote())
    ray.kill(actor, no_restart=False)

    def again():
        try:
            return ray.get(actor.pid.remote(), timeout=10) != before
        except ray.exceptions.RayActorError:
            return False

    return wait_until(again)


def dropped_while_it_runs():
    actor = Actor.remote()
    pid = ray.get(actor.pid.remote())
    reference = actor.slow.remote()
    del actor
    return [ray.get(reference), wait_until(lambda: not is_alive(pid), 10)]


def restarts(method, count, *arguments):
    actor = Actor.options(max_restarts=count).remote()
    pids = set()
    for _ in range(count + 1):
        if not wait_until(lambda: not add_pid(actor, pids), 10):
            break
        try:
            ray.get(getattr(actor, method).remote(*arguments), timeout=20)
        except Exception:
            pass
    return len(pids)


def add_pid(actor, pids):
    try:
        pids.add(ray.get(actor.pid.remote(), timeout=5))
    except ray.exceptions.RayActorError:
        return True
    return False


def stream(method):
    actor = Actor.remote()
    generator = getattr(actor, method).options(num_returns="streaming").remote()
    first = ray.get(next(generator))
    try:
        ray.get(next(generator))
    except StopIteration:
        return [first, "end"]
    return [first, "another"]


def terminated():
    actor = Actor.remote()
    pid = ray.get(actor.pid.remote())
    slow = actor.slow.remote()
    actor.__ray_terminate__.remote()
    return [ray.get(slow, timeout=20), wait_until(lambda: not is_alive(pid), 10)]


def call_with_function():
    actor = Actor.remote("somewhere")
    return ray.get(actor.__ray_call__.remote(lambda self, more: self.path + more, "!"))


def attributes_of_the_error(kill):
    actor = Actor.remote()
    ray.get(actor.pid.remote())
    kill(actor)
    try:
        ray.get(actor.pid.remote(), timeout=20)
    except ray.exceptions.ActorDiedError as error:
        return [error.actor_id == actor._actor_id.hex(), bool(error.actor_init_failed)]


@ray.remote(num_cpus=0)
class Broken:
    def __init__(self):
        raise ValueError("not today")

    def method(self):
        pass


def init_failed():
    actor = Broken.remote()
    try:
        ray.get(actor.method.remote(), timeout=20)
    except ray.exceptions.ActorDiedError as error:
        return [
            error.actor_id == actor._actor_id.hex(),
            bool(error.actor_init_failed),
            "not today" in str(error),
        ]


@ray.remote
def exits_in_task():
    ray.actor.exit_actor()


def kill_it(actor):
    os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)


def terminate_it(actor):
    actor.__ray_terminate__.remote()


def exit_it(actor):
    actor.exits.remote()


show("exit_actor", lambda: end(Actor.remote(), "exits"), INTENDED)
show("exit_actor, later calls", lambda: later_calls("exits"), INTENDED)
show("exit_actor, queued calls", lambda: queued_calls("exits"), INTENDED)
show("exit_actor of an async actor", lambda: end(Async.remote(), "exits"), INTENDED)
show(
    "exit_actor in a task",
    lambda: ray.get(exits_in_task.remote(), timeout=20),
    "exit_actor API is called on a non-actor worker",
)
show("exit_actor in the driver", ray.actor.exit_actor, "exit_actor API is called on a non-actor worker")
show("exit_actor that is caught", lambda: ray.get(Actor.remote().catches.remote(), timeout=20))
show("sys.exit", lambda: end(Actor.remote(), "system_exit"))
show("sys.exit with a code", lambda: end(Actor.remote(), "system_exit", 5))
show("sys.exit, later calls", lambda: later_calls("system_exit"))
show("os._exit", lambda: end(Actor.remote(), "hard_exit"), CRASHED)
show("os._exit with a code", lambda: end(Actor.remote(), "hard_exit", 3), CRASHED)
show("os._exit, later calls", lambda: later_calls("hard_exit"), CRASHED)
show("os._exit, queued calls", lambda: queued_calls("hard_exit"), CRASHED)
show("a signal", lambda: end(Actor.remote(), "aborts"), CRASHED)
show("killed while it runs", killed_while_it_runs, KILLED)
show("killed twice", killed_twice, KILLED)
show("killed before it is there", killed_before_it_is_there, KILLED)
show("killed to restart", killed_to_restart)
show("dropped while it runs", dropped_while_it_runs)
show("terminated", terminated)
show("handlers: exit_actor", lambda: with_handlers(exit_it, f"/tmp/exits-{os.getpid()}"))
show("handlers: terminated", lambda: with_handlers(terminate_it, f"/tmp/exits-{os.getpid()}"))
show("handlers: killed", lambda: with_handlers(ray.kill, f"/tmp/exits-{os.getpid()}"))
show("handlers: a signal", lambda: with_handlers(kill_it, f"/tmp/exits-{os.getpid()}"))
show("restarts after os._exit", lambda: restarts("hard_exit", 2, 1))
show("restarts after sys.exit", lambda: restarts("system_exit", 1, 1))
show("restarts after exit_actor", lambda: restarts("exits", 1))
show("a stream that exits", lambda: stream("items"), INTENDED)
show("a stream that dies", lambda: stream("items_and_death"), CRASHED)
show("a function for the actor", call_with_function)
show("attributes after kill", lambda: attributes_of_the_error(ray.kill))
show("attributes after a signal", lambda: attributes_of_the_error(kill_it))
show("a constructor that raises", init_failed)
