"""The runtime context, in the driver, in tasks and in actors."""

import ray
from outcomes import show, start

start(namespace="space", resources={"x": 1})


def facts():
    here = ray.get_runtime_context()
    accelerators = here.get_accelerator_ids()
    return {
        "task": here.get_task_id() is not None,
        "actor": here.get_actor_id() is not None,
        "task name": here.get_task_name(),
        "function": here.get_task_function_name(),
        "actor name": here.get_actor_name(),
        "namespace": here.namespace,
        "resources": sorted(here.get_assigned_resources()),
        "kinds": sorted(accelerators),
        "placement group": here.get_placement_group_id(),
        "same job": here.get_job_id() == job,
    }


job = ray.get_runtime_context().get_job_id()
task = ray.remote(facts)


@ray.remote(num_cpus=0)
class A:
    def facts(self):
        return facts()

    def again(self):
        return ray.get_runtime_context().was_current_actor_reconstructed

    def me(self):
        return ray.get_runtime_context().current_actor


@ray.remote(num_cpus=0)
class B:
    async def facts(self):
        return facts()


show("task", lambda: ray.get(task.remote()))
show("named task", lambda: ray.get(task.options(name="other", resources={"x": 1}).remote()))
show("actor", lambda: ray.get(A.remote().facts.remote()))
show("named actor", lambda: ray.get(A.options(name="called").remote().facts.remote()))
show("named call", lambda: ray.get(A.remote().facts.options(name="call").remote())["task name"])
show("async actor", lambda: ray.get(B.remote().facts.remote()))
show("not reconstructed", lambda: ray.get(A.remote().again.remote()))
actor = A.remote()
show("current actor", lambda: ray.get(actor.me.remote()) == actor)
show("node", lambda: ray.get_runtime_context().get_node_id() == ray.nodes()[0]["NodeID"])
show("resources of the node", lambda: sorted(set(ray.cluster_resources()) & {"CPU", "x", "memory"}))
show("head", lambda: "node:__internal_head__" in ray.cluster_resources())
show("store", lambda: ray.available_resources()["object_store_memory"] > 0)
show("label of the node", lambda: "ray.io/node-id" in ray.nodes()[0]["Labels"])
