"""Parents of tasks that threads submit."""

import threading

import ray
from outcomes import show, start, wait_until
from ray.util.state import list_tasks

start(dashboard=True)


@ray.remote(num_cpus=0)
def child():
    return 1


def in_thread(name):
    def submit():
        ray.get(child.options(name=name).remote())

    thread = threading.Thread(target=submit)
    thread.start()
    thread.join()


@ray.remote(num_cpus=0)
def task():
    in_thread("of a task")
    return ray.get_runtime_context().get_task_id()


@ray.remote(num_cpus=0)
class Plain:
    def call(self):
        in_thread("of a method")
        return ray.get_runtime_context().get_task_id()


@ray.remote(num_cpus=0, max_concurrency=3)
class Threaded:
    def call(self):
        in_thread("of a threaded actor")
        return ray.get_runtime_context().get_task_id()


@ray.remote(num_cpus=0)
class Async:
    async def call(self):
        in_thread("of an async actor")
        return ray.get_runtime_context().get_task_id()


def rows():
    return {row.name: row for row in list_tasks(detail=True)}


def parent(name):
    wait_until(lambda: name in rows(), 20)
    return rows()[name].parent_task_id


def name_of(task_id):
    return next((row.name for row in list_tasks(detail=True) if row.task_id == task_id), None)


mine = ray.get(task.remote())
show("a task", lambda: parent("of a task") == mine)
plain = Plain.remote()
call = ray.get(plain.call.remote())
show("a method", lambda: parent("of a method") == call)


def parent_of_a_call(actor, name):
    call = ray.get(actor.call.remote())
    return [parent(name) == call, name_of(parent(name))]


show("of a threaded actor", lambda: parent_of_a_call(Threaded.remote(), "of a threaded actor"))
show("of an async actor", lambda: parent_of_a_call(Async.remote(), "of an async actor"))
in_thread("of the driver")
show("the driver", lambda: parent("of the driver") == ray.get_runtime_context().get_task_id())
