"""Actors whose creator, handles or process go: names, other holders, restarts, code."""

import gc
import os
import signal

import ray
from outcomes import is_alive, show, start, wait_until

start()
SECONDS = 2
"""How long something may take that happens at once with Ray."""


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count

    def pid(self):
        return os.getpid()


@ray.remote(num_cpus=0)
class Creator:
    def make(self, **options):
        @ray.remote(num_cpus=0)
        class Local:
            def pid(self):
                return os.getpid()

            def value(self):
                return 5

        self.made = Local.options(**options).remote()
        ray.get(self.made.value.remote())
        return [self.made]

    def pid(self):
        return os.getpid()


def found(name):
    try:
        ray.get_actor(name)
    except ValueError:
        return False
    return True


def only_get_actor_left():
    made = Counter.options(name="weak").remote()
    ray.get(made.add.remote())
    again = ray.get_actor("weak")
    pid = ray.get(again.pid.remote())
    del made
    gc.collect()
    gone = wait_until(lambda: not is_alive(pid), SECONDS)
    return [gone, wait_until(lambda: not found("weak"), SECONDS)]


def passed_on():
    made = Counter.options(name="passed").remote()
    pid = ray.get(made.pid.remote())
    reference = ray.put([made])
    del made
    gc.collect()
    alive = not wait_until(lambda: not is_alive(pid), SECONDS)
    (again,) = ray.get(reference)
    count = ray.get(again.add.remote())
    del reference, again
    gc.collect()
    return [alive, count, wait_until(lambda: not is_alive(pid))]


def taken(name, **options):
    try:
        other = Counter.options(name=name, **options).remote()
        ray.get(other.add.remote())
        ray.kill(other)
    except ValueError:
        return True
    return False


def name_of_one_that_died():
    made = Counter.options(name="dead").remote()
    pid = ray.get(made.pid.remote())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not found("dead"), 5)
    try:
        ray.get(made.add.remote())
    except ray.exceptions.RayActorError:
        pass
    still = taken("dead")
    del made
    gc.collect()
    return [still, wait_until(lambda: not taken("dead"), 10)]


def name_of_one_that_was_killed():
    made = Counter.options(name="killed").remote()
    ray.get(made.add.remote())
    ray.kill(made)
    return wait_until(lambda: not taken("killed"), 5)


def name_of_a_detached_one():
    made = Counter.options(name="detached", lifetime="detached").remote()
    os.kill(ray.get(made.pid.remote()), signal.SIGKILL)
    try:
        ray.get(made.add.remote())
    except ray.exceptions.RayActorError:
        pass
    return wait_until(lambda: not taken("detached"), 5)


def name_of_one_that_exited():
    @ray.remote(num_cpus=0)
    class Leaves:
        def leave(self):
            ray.actor.exit_actor()

    made = Leaves.options(name="left").remote()
    try:
        ray.get(made.leave.remote())
    except ray.exceptions.RayActorError:
        pass
    return wait_until(lambda: not taken("left"), SECONDS)


def creator_killed(**options):
    creator = Creator.remote()
    (made,) = ray.get(creator.make.remote(**options))
    pid = ray.get(made.pid.remote())
    os.kill(ray.get(creator.pid.remote()), signal.SIGKILL)
    gone = wait_until(lambda: not is_alive(pid), SECONDS)
    return gone, made


def calls_after_the_creator():
    return ray.get(orphan.value.remote(), timeout=20)


def detached_after_the_creator():
    gone, made = creator_killed(lifetime="detached", name="outlives", max_restarts=1)
    os.kill(ray.get(made.pid.remote()), signal.SIGKILL)

    def value():
        try:
            return ray.get(made.value.remote())
        except ray.exceptions.RayActorError:
            return None

    return [gone, wait_until(lambda: value() == 5)]


def created_by_a_task():
    @ray.remote(num_cpus=0)
    def creates():
        made = Counter.remote()
        ray.get(made.add.remote())
        return [made]

    (made,) = ray.get(creates.remote())
    return ray.get(made.add.remote())


show("only handles of get_actor are left", only_get_actor_left)
show("a handle in a value", passed_on)
show("the name of one that died", name_of_one_that_died)
show("the name of one that was killed", name_of_one_that_was_killed)
show("the name of a detached one that died", name_of_a_detached_one)
show("the name of one that exited", name_of_one_that_exited)
gone, orphan = creator_killed(max_restarts=1)
show("the creator is killed", lambda: gone)
show("calls after the creator", calls_after_the_creator, "The actor is dead because its owner has died")
show("detached, after the creator", detached_after_the_creator)
show("created by a task", created_by_a_task)
