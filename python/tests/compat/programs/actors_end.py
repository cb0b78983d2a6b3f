"""How actors end, and what their callers see."""

import os
import sys

import ray
from outcomes import is_alive, show, start, wait_until

start()


@ray.remote(num_cpus=0)
class A:
    def __init__(self, fails=False):
        self.value = 0
        if fails:
            raise ValueError("in the constructor")

    def value(self):
        return 1

    def pid(self):
        return os.getpid()

    def leave(self):
        ray.actor.exit_actor()

    def exit(self):
        sys.exit(1)

    def die(self):
        os._exit(1)


def ended(end):
    actor = A.remote()
    pid = ray.get(actor.pid.remote())
    end(actor)
    return actor, pid


def id_of(actor):
    try:
        ray.get(actor.pid.remote())
    except ray.exceptions.ActorDiedError as error:
        return error.actor_id == actor._actor_id.hex()


killed, pid = ended(ray.kill)
show("killed", lambda: ray.get(killed.pid.remote()), "killed by `ray.kill`")
show("killed: the id", lambda: id_of(killed))
show("killed: its process", lambda: wait_until(lambda: not is_alive(pid)))
show("killed twice", lambda: ray.kill(killed))

left, _ = ended(lambda actor: None)
show("exit_actor: the call", lambda: ray.get(left.leave.remote()), "INTENDED_USER_EXIT")
show("exit_actor: later", lambda: ray.get(left.pid.remote()), "INTENDED_USER_EXIT")

exited, _ = ended(lambda actor: None)
show("sys.exit: the call", lambda: ray.get(exited.exit.remote()))
show("sys.exit: later", lambda: ray.get(exited.pid.remote()))

died, _ = ended(lambda actor: None)
show("os._exit: the call", lambda: ray.get(died.die.remote()), "its worker process has died")
show("os._exit: later", lambda: ray.get(died.pid.remote()), "its worker process has died")

restarted = A.options(max_restarts=1).remote()
first = ray.get(restarted.pid.remote())
show("restart: the call", lambda: ray.get(restarted.die.remote()))
show("restart: a later one", lambda: ray.get(restarted.pid.options(max_task_retries=5).remote()) != first)

show("the constructor raises", lambda: ray.get(A.remote(True).pid.remote()), "in the constructor")
show("an attribute hides a method", lambda: ray.get(A.remote().value.remote()))
show("no such method", lambda: A.remote().nothing)
show("kill of a task", lambda: ray.kill(ray.put(1)))
show("exit_actor in the driver", ray.actor.exit_actor, "non-actor worker")


def dropped():
    actor = A.remote()
    pid = ray.get(actor.pid.remote())
    del actor
    return wait_until(lambda: not is_alive(pid))


show("the last handle is dropped", dropped)
