"""The state API: tasks, actors, nodes."""

import os
import time

import ray
from outcomes import show, start, wait_until
from ray.util.state import list_actors, list_tasks

start(dashboard=True)


@ray.remote
def child():
    return 1


@ray.remote
def parent():
    return ray.get(child.remote())


@ray.remote(max_retries=0)
def fails(way):
    if way == "raise":
        raise ValueError("the reason")
    os._exit(27)


@ray.remote(num_cpus=0)
class A:
    def ok(self):
        return 1

    def stuck(self):
        time.sleep(5)


def rows(**filters):
    wanted = [(name, "=", value) for name, value in filters.items()]
    return list_tasks(filters=wanted, detail=True)


def states(**filters):
    return sorted([row.name, row.state, row.type] for row in rows(**filters))


ray.get(parent.remote())
show("two tasks", lambda: wait_until(lambda: len(rows(state="FINISHED")) == 2))
show("their states", states)
by_name = {row.name: row for row in rows()}
show("parent", lambda: by_name["child"].parent_task_id == by_name["parent"].task_id)
for way in ("raise", "die"):
    try:
        ray.get(fails.options(name=way).remote(way))
    except Exception:
        pass
show("two failures", lambda: wait_until(lambda: len(rows(state="FAILED")) == 2))
show("their types", lambda: sorted([row.name, row.error_type] for row in rows(state="FAILED")))
show("the reason", lambda: "the reason" in rows(name="raise")[0].error_message)
actor = A.options(name="called").remote()
ray.get(actor.ok.remote())
stuck = actor.stuck.remote()
show("a running call", lambda: wait_until(lambda: bool(rows(name="A.stuck", state="RUNNING"))))
show("the constructor", lambda: states(type="ACTOR_CREATION_TASK"))
show("calls", lambda: states(type="ACTOR_TASK"))
show("actors", lambda: [[row.class_name, row.state, row.name] for row in list_actors()])
ray.kill(actor)
show("killed", lambda: wait_until(lambda: [row.state for row in list_actors()] == ["DEAD"]))
