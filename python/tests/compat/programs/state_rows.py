"""The state API: rows, filters, limits and counts."""

import os

import ray
from outcomes import show, start, wait_until
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.state import (
    get_actor,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)

start(dashboard=True, namespace="space")


@ray.remote(num_cpus=0)
class A:
    def ok(self):
        return os.getpid()

    def fail(self):
        raise ValueError("the reason")

    def die(self):
        os._exit(1)


@ray.remote(num_cpus=0)
def quick():
    return 1


@ray.remote(num_cpus=100)
def never():
    return 1


@ray.remote(num_cpus=1, max_retries=2, retry_exceptions=True)
def flaky(folder):
    number = len(os.listdir(folder))
    open(os.path.join(folder, str(number)), "w").close()
    if number < 1:
        raise ValueError("again")
    return number


def eventually(function):
    """What a function gives once it gives something true: rows come a little later."""

    def check():
        try:
            return bool(function())
        except Exception:
            return False

    return lambda: wait_until(check, 20) and True


def one(rows):
    rows = list(rows)
    return rows[0] if len(rows) == 1 else None


named = A.options(name="named").remote()
pid = ray.get(named.ok.remote())
plain = A.remote()
ray.get(plain.ok.remote())
show("two actors", eventually(lambda: len(list_actors()) == 2))
row = one(list_actors(filters=[("name", "=", "named")], detail=True))
show("class", lambda: row.class_name)
show("name", lambda: row.name)
show("namespace", lambda: row.ray_namespace)
show("state", lambda: row.state)
show("process", lambda: row.pid == pid)
show("id", lambda: row.actor_id == named._actor_id.hex())
show("node", lambda: row.node_id == ray.get_runtime_context().get_node_id())
show("job", lambda: row.job_id == ray.get_runtime_context().get_job_id())
show("restarts", lambda: row.num_restarts)
show("detached", lambda: row.is_detached)
show("group", lambda: row.placement_group_id)
show("by id", lambda: get_actor(named._actor_id.hex())["name"])
show("by an unknown id", lambda: get_actor("f" * 32))
show("as a dict", lambda: row["class_name"])
show("not named", lambda: [found.class_name for found in list_actors(filters=[("name", "!=", "named")])])
show("two filters", lambda: len(list_actors(filters=[("name", "=", "named"), ("state", "=", "ALIVE")])))
show("no match", lambda: list_actors(filters=[("name", "=", "nobody")]))
show("without case", lambda: len(list_actors(filters=[("state", "=", "alive")])))
show("limit", lambda: len(list_actors(limit=1)))
show("wrong predicate", lambda: list_actors(filters=[("name", ">", "named")]))
show("wrong column", lambda: list_actors(filters=[("nothing", "=", "named")]))
show("filter of two", lambda: list_actors(filters=[("name", "named")]))
show("limit of 0", lambda: list_actors(limit=0))
show("actors counted", lambda: sorted(summarize_actors()["cluster"]["summary"]["A"]["state_counts"].items()))

reference = plain.fail.remote()
try:
    ray.get(reference)
except ValueError:
    pass
show(
    "a failed call", eventually(lambda: one(list_tasks(filters=[("name", "=", "A.fail")])).state == "FAILED")
)
failed = one(list_tasks(filters=[("name", "=", "A.fail")], detail=True))
show("failed: type", lambda: [failed.type, failed.error_type])
show("failed: function", lambda: failed.func_or_class_name)
show("failed: of the actor", lambda: failed.actor_id == plain._actor_id.hex())
show("failed: task id", lambda: failed.task_id == reference.task_id().hex())
show("failed: its message", lambda: "the reason" in failed.error_message)
show("task by id", eventually(lambda: get_task(reference.task_id().hex())))
ray.get(quick.options(name="other").remote())
show("named task", eventually(lambda: one(list_tasks(filters=[("name", "=", "other")])).state == "FINISHED"))
other = one(list_tasks(filters=[("name", "=", "other")], detail=True))
show("named task: function", lambda: other.func_or_class_name)
show("named task: attempt", lambda: other.attempt_number)
show("named task: needs", lambda: other.required_resources)
show("named task: node", lambda: other.node_id == ray.get_runtime_context().get_node_id())
show("named task: process", lambda: other.worker_pid != os.getpid())
waiting = never.remote()
show(
    "waits for a node",
    eventually(lambda: one(list_tasks(filters=[("name", "=", "never")])).state == "PENDING_NODE_ASSIGNMENT"),
)
dependent = ray.remote(lambda value: value).options(name="dependent", num_cpus=0).remote(waiting)
show(
    "waits for an argument",
    eventually(lambda: one(list_tasks(filters=[("name", "=", "dependent")])).state == "PENDING_ARGS_AVAIL"),
)
ray.cancel(waiting)
show(
    "cancelled before it ran",
    eventually(lambda: one(list_tasks(filters=[("name", "=", "never")], detail=True)).state == "FAILED"),
)
show(
    "cancelled: type",
    lambda: one(list_tasks(filters=[("name", "=", "never")], detail=True)).error_type,
)
show("tasks counted", lambda: sorted(summarize_tasks()["cluster"]["summary"]["A.ok"]["state_counts"].items()))
show("tasks counted: type", lambda: summarize_tasks()["cluster"]["summary"]["A.ok"]["type"])
show("tasks counted: in all", lambda: summarize_tasks()["cluster"]["total_actor_tasks"])

node = one(list_nodes(detail=True))
show("node: state", lambda: node.state)
show("node: head", lambda: node.is_head_node)
show("node: id", lambda: node.node_id == ray.get_runtime_context().get_node_id())
show("node: CPUs", lambda: node.resources_total["CPU"])
show("node: by id", lambda: get_node(node.node_id).state)
job = one(list_jobs(detail=True))
show("job: status", lambda: job.status)
show("job: type", lambda: job.type)
show("job: id", lambda: job.job_id == ray.get_runtime_context().get_job_id())
show("job: process", lambda: int(job.driver_info.pid) == os.getpid())
workers = list_workers(detail=True)
show("workers: kinds", lambda: sorted({worker.worker_type for worker in workers}))
show("workers: the actor's", lambda: pid in [worker.pid for worker in workers])
show("workers: the driver's", lambda: os.getpid() in [worker.pid for worker in workers])
show("workers: alive", lambda: all(worker.is_alive for worker in list_workers()))

group = placement_group([{"CPU": 1}], name="group", strategy="SPREAD")
ray.get(group.ready())
found = one(list_placement_groups(detail=True))
show("group: state", lambda: found.state)
show("group: name", lambda: found.name)
show("group: id", lambda: found.placement_group_id == group.id.hex())
show("group: detached", lambda: found.is_detached)
show("group: by id", lambda: get_placement_group(group.id.hex())["state"])
show("group: bundles", lambda: len(found.bundles))
remove_placement_group(group)
show("group: removed", eventually(lambda: one(list_placement_groups()).state == "REMOVED"))

large = ray.put(b"x" * 1_000_000)
show("object", eventually(lambda: get_objects(large.hex())))
mine = get_objects(large.hex())
show("object: size", lambda: mine[0].object_size >= 1_000_000)
show("object: process", lambda: mine[0].pid == os.getpid())
show("object: held", lambda: mine[0].reference_type)
show("object: worker", lambda: mine[0].type)
show("object: listed", lambda: large.hex() in [item.object_id for item in list_objects()])
show("objects counted", lambda: summarize_objects()["cluster"]["total_objects"] >= 1)
ray.kill(plain)
show("dead", eventually(lambda: one(list_actors(filters=[("state", "=", "DEAD")]))))
show("dead: its cause", lambda: "ray.kill" in str(get_actor(plain._actor_id.hex()).death_cause))
try:
    ray.get(named.die.remote())
except ray.exceptions.RayActorError:
    pass
show("died", eventually(lambda: len(list_actors(filters=[("state", "=", "DEAD")])) == 2))
show("died: no process of it is alive", lambda: wait_until(lambda: not os.path.exists(f"/proc/{pid}")))
