"""What a session tells of itself: the context of init, nodes, resources, ids."""

import os
import re

import ray
from outcomes import show, wait_until

show("get before init", lambda: ray.get_runtime_context().get_job_id() is not None)
ray.shutdown()
context = ray.init(
    num_cpus=3,
    num_gpus=2,
    resources={"x": 2, "y": 1},
    labels={"zone": "here"},
    object_store_memory=100_000_000,
    include_dashboard=False,
    log_to_driver=False,
    namespace="space",
)
here = ray.get_runtime_context()


@ray.remote(num_cpus=0)
class A:
    def facts(self):
        mine = ray.get_runtime_context()
        return {
            "job": mine.get_job_id(),
            "node": mine.get_node_id(),
            "worker": mine.get_worker_id(),
            "actor": mine.get_actor_id(),
            "task": mine.get_task_id(),
            "namespace": mine.namespace,
            "resources": ray.cluster_resources().get("x"),
        }

    def assigned(self):
        return ray.get_runtime_context().get_assigned_resources()


@ray.remote(num_cpus=1, resources={"x": 1})
def assigned():
    return ray.get_runtime_context().get_assigned_resources()


@ray.remote(num_gpus=1)
def gpus():
    return [len(ray.get_gpu_ids()), len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))]


@ray.remote(num_gpus=0.5)
def half():
    return len(ray.get_gpu_ids())


@ray.remote(num_cpus=0)
def nested():
    return ray.get(ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().get_job_id()).remote())


def is_hex(text):
    return bool(re.fullmatch("[0-9a-f]+", text))


actor = A.remote()
facts = ray.get(actor.facts.remote())
node = ray.nodes()[0]
resources = ray.cluster_resources()
show(
    "keys of the context",
    lambda: sorted({"address", "node_id", "session_dir", "node_ip_address"} & set(context.address_info)),
)
show("context by key", lambda: context["node_id"] == here.get_node_id())
show("context: a dashboard", lambda: bool(context.dashboard_url))
show("context: Python", lambda: context.python_version.count("."))
show(
    "ids are hexadecimal",
    lambda: [is_hex(text) for text in (here.get_job_id(), here.get_node_id(), here.get_worker_id())],
)
show("the driver has no actor", here.get_actor_id)
show("the driver has no task", lambda: here.get_task_id())
show("the driver's namespace", lambda: here.namespace)
show("the driver's resources", here.get_assigned_resources)
show("the driver's environment", lambda: dict(here.runtime_env))
show("the driver's environment as text", here.get_runtime_env_string)
show("the driver's name", here.get_task_name)
show("the driver's function", here.get_task_function_name)
show("was it reconstructed", lambda: here.was_current_actor_reconstructed)
show("the driver is no actor", lambda: here.current_actor)
show("no group", here.get_placement_group_id)
show("capture", lambda: here.should_capture_child_tasks_in_placement_group)
show("actor: job", lambda: facts["job"] == here.get_job_id())
show("actor: node", lambda: facts["node"] == here.get_node_id())
show("actor: another worker", lambda: facts["worker"] != here.get_worker_id())
show("actor: its id", lambda: facts["actor"] == actor._actor_id.hex())
show("actor: its task", lambda: is_hex(facts["task"]))
show("actor: namespace", lambda: facts["namespace"])
show("actor: resources of the cluster", lambda: facts["resources"])
show("actor: what it holds", lambda: ray.get(actor.assigned.remote()))
show(
    "actor with resources",
    lambda: ray.get(A.options(num_cpus=1, resources={"y": 0.5}).remote().assigned.remote()),
)
show("task: what it holds", lambda: ray.get(assigned.remote()))
show("task of a task: job", lambda: ray.get(nested.remote()) == here.get_job_id())
show("a GPU", lambda: ray.get(gpus.remote()))
show("two GPUs", lambda: ray.get(gpus.options(num_gpus=2).remote()))
show("half a GPU", lambda: ray.get(half.remote()))
show("no GPU in the driver", ray.get_gpu_ids)
show("nodes", lambda: len(ray.nodes()))
show(
    "node: keys",
    lambda: sorted({"NodeID", "Alive", "Resources", "Labels", "NodeManagerAddress", "alive"} & set(node)),
)
show("node: alive", lambda: node["Alive"])
show("node: id", lambda: node["NodeID"] == here.get_node_id())
show("node: resources", lambda: [node["Resources"][name] for name in ("CPU", "GPU", "x", "y")])
show("node: store", lambda: round(node["Resources"]["object_store_memory"] / 1e6))
show("node: label", lambda: node["Labels"]["zone"])
show("node: address", lambda: f"node:{node['NodeManagerAddress']}" in node["Resources"])
show("cluster: resources", lambda: [resources[name] for name in ("CPU", "GPU", "x", "y")])
show("cluster: memory", lambda: resources["memory"] > 0)
show("available: x", lambda: wait_until(lambda: ray.available_resources()["x"] == 2))
show("init again", ray.init, "calling ray.init")
show("init again with a namespace", lambda: ray.init(namespace="other"))
show("is initialised", ray.is_initialized)
show("version", lambda: bool(re.match(r"\d+\.\d+", ray.__version__)))
show("job id", lambda: here.job_id.hex() == here.get_job_id())
show("node id", lambda: here.node_id.hex() == here.get_node_id())
show("get", lambda: sorted(here.get()))
show("disconnect", context.disconnect)
show("not initialised", ray.is_initialized)
with ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False):
    show("with: inside", ray.is_initialized)
show("with: after", ray.is_initialized)
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
show("another job", lambda: ray.get_runtime_context().get_job_id() is not None)
show("a namespace of its own", lambda: bool(ray.get_runtime_context().namespace))
show("an old reference", lambda: ray.get(actor.facts.remote(), timeout=20))
ray.shutdown()
for name, options in {
    "num_cpus": {"num_cpus": -1},
    "num_cpus as text": {"num_cpus": "2"},
    "resources": {"resources": {"x": -1}},
    "resources as a list": {"resources": ["x"]},
    "CPU as a resource": {"resources": {"CPU": 1}},
    "a small store": {"object_store_memory": 1},
    "labels": {"labels": {"": "x"}},
    "label value": {"labels": {"a": "b c"}},
    "runtime_env": {"runtime_env": {"env_vars": {"a": 1}}},
    "namespace": {"namespace": 3},
}.items():
    show(f"wrong {name}", lambda given=options: bool(ray.init(include_dashboard=False, **given)))
    ray.shutdown()
