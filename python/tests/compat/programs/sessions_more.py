"""What a session is from within: contexts of tasks, threads and actors, names, jobs, and its end."""

import os
import threading

import ray
from outcomes import is_alive, show, start, wait_until

start(namespace="mine", resources={"x": 2}, runtime_env={"env_vars": {"JOBS": "yes"}})
CONTEXT = ray.get_runtime_context()


@ray.remote(num_cpus=1, resources={"x": 0.5})
def told(what, *arguments):
    return getattr(ray.get_runtime_context(), what)(*arguments)


@ray.remote(num_cpus=0)
class Actor:
    def told(self, what, *arguments):
        return getattr(ray.get_runtime_context(), what)(*arguments)

    def asked(self, what):
        return getattr(ray.get_runtime_context(), what)

    def in_thread(self, what):
        found = []

        def ask():
            found.append(getattr(ray.get_runtime_context(), what)())

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return found[0]

    def me(self):
        return ray.get_runtime_context().current_actor

    def value(self):
        return 7

    def pid(self):
        return os.getpid()


@ray.remote(num_cpus=0)
class Async(
    Actor.__ray_metadata__.modified_class if hasattr(Actor, "__ray_metadata__") else Actor.__wrapped__
):
    async def other(self):
        return ray.get_runtime_context().get_actor_id()


@ray.remote(num_cpus=0)
def in_thread(what):
    found = []
    thread = threading.Thread(target=lambda: found.append(getattr(ray.get_runtime_context(), what)()))
    thread.start()
    thread.join()
    return [found[0] == getattr(ray.get_runtime_context(), what)(), type(found[0]).__name__]


@ray.remote(num_cpus=0)
def named_actor(name, namespace=None):
    return ray.get(ray.get_actor(name, namespace=namespace).value.remote())


@ray.remote(num_cpus=0)
def environment(name):
    return os.environ.get(name)


@ray.remote(num_cpus=0)
def initialised():
    return [ray.is_initialized(), ray.get_runtime_context().namespace]


@ray.remote(num_cpus=0)
def init_again():
    ray.init(ignore_reinit_error=True)
    return ray.is_initialized()


@ray.remote(num_cpus=0)
def pid():
    return os.getpid()


def after_shutdown():
    actor = Actor.remote()
    process, other = ray.get(actor.pid.remote()), ray.get(pid.remote())
    ray.shutdown()
    return wait_until(lambda: not is_alive(process) and not is_alive(other))


first = Actor.options(name="kept", lifetime="detached").remote()
ray.get(first.value.remote())
show("task: name", lambda: ray.get(told.remote("get_task_name")))
show("task: function", lambda: ray.get(told.remote("get_task_function_name")))
show("task: renamed", lambda: ray.get(told.options(name="other").remote("get_task_name")))
show("task: holds", lambda: ray.get(told.remote("get_assigned_resources")))
show("task: actor", lambda: ray.get(told.remote("get_actor_id")))
show("task: actor's name", lambda: ray.get(told.remote("get_actor_name")))
show("task: group", lambda: ray.get(told.remote("get_placement_group_id")))
show("task: job", lambda: ray.get(told.remote("get_job_id")) == CONTEXT.get_job_id())
show("task: node", lambda: ray.get(told.remote("get_node_id")) == CONTEXT.get_node_id())
show("task: in a thread", lambda: ray.get(in_thread.remote("get_task_id")))
show("task: job in a thread", lambda: ray.get(in_thread.remote("get_job_id")))
show("task: node in a thread", lambda: ray.get(in_thread.remote("get_node_id")))
show("task: name in a thread", lambda: ray.get(in_thread.remote("get_task_name")))
show("actor: name", lambda: ray.get(first.told.remote("get_actor_name")))
show("actor: no name", lambda: ray.get(Actor.remote().told.remote("get_actor_name")))
show("actor: id", lambda: ray.get(first.told.remote("get_actor_id")) == first._actor_id.hex())
show("actor: task's name", lambda: ray.get(first.told.remote("get_task_name")))
show(
    "actor: id in a thread", lambda: ray.get(first.in_thread.remote("get_actor_id")) == first._actor_id.hex()
)
show("actor: namespace", lambda: ray.get(first.asked.remote("namespace")))
show("actor: itself", lambda: ray.get(ray.get(first.me.remote()).value.remote()))
show(
    "actor: holds",
    lambda: ray.get(
        Actor.options(num_cpus=1, resources={"x": 1}).remote().told.remote("get_assigned_resources")
    ),
)
show("async actor: id", lambda: len(ray.get(Async.remote().other.remote())) > 0)
show("a named actor from a task", lambda: ray.get(named_actor.remote("kept")))
show("from another namespace", lambda: ray.get(named_actor.remote("kept", "other")))
show("by its namespace", lambda: ray.get(named_actor.remote("kept", "mine")))
show(
    "an actor elsewhere",
    lambda: ray.get(Actor.options(name="far", namespace="other").remote().value.remote()),
)
show("variables of the job", lambda: ray.get(environment.remote("JOBS")))
show(
    "variables of a task",
    lambda: ray.get(environment.options(runtime_env={"env_vars": {"JOBS": "no"}}).remote("JOBS")),
)
show(
    "more variables of a task",
    lambda: ray.get(environment.options(runtime_env={"env_vars": {"MORE": "1"}}).remote("JOBS")),
)
show("in a task", lambda: ray.get(initialised.remote()))
show("init in a task", lambda: ray.get(init_again.remote()))
show("list of actors", lambda: sorted(ray.util.list_named_actors()))
show(
    "list of all actors",
    lambda: sorted(
        (row["name"], row["namespace"]) for row in ray.util.list_named_actors(all_namespaces=True)
    ),
)
show("the driver's task", lambda: CONTEXT.get_task_id() is not None)
show("after shutdown", after_shutdown)
show("is it initialised", ray.is_initialized)
