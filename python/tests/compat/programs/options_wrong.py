"""Wrong options of tasks, actors and methods, without a cluster."""

import ray
from outcomes import show


def f():
    pass


class A:
    def m(self):
        pass


for options in (
    {"num_cpus": -1},
    {"num_cpus": "1"},
    {"num_gpus": -0.5},
    {"num_gpus": 0.00001},
    {"max_retries": -2},
    {"max_retries": 1.5},
    {"max_calls": -1},
    {"max_calls": 0.5},
    {"num_returns": -1},
    {"num_returns": "streams"},
    {"num_returns": 1.5},
    {"resources": {"CPU": 1}},
    {"resources": {"x": -1}},
    {"resources": [1]},
    {"memory": -1},
    {"unknown_option": 1},
    {"name": 3},
    {"scheduling_strategy": "SOMEWHERE"},
    {"runtime_env": 3},
):
    show(f"task {options}", lambda given=options: bool(ray.remote(**given)(f)), "precision")
for options in (
    {"max_restarts": -2},
    {"max_restarts": 1.5},
    {"max_task_retries": -2},
    {"max_concurrency": 0},
    {"lifetime": "for ever"},
    {"name": ""},
    {"namespace": 3},
    {"max_pending_calls": 0},
    {"get_if_exists": True},
    {"num_returns": 2},
):
    show(f"actor {options}", lambda given=options: bool(ray.remote(**given)(A)))
show("empty parentheses", lambda: bool(ray.remote()))
show("remote of a number", lambda: bool(ray.remote(3)))
show("options and a function", lambda: bool(ray.remote(f, num_cpus=1)))
show("an actor class is called", lambda: ray.remote(A)(), "cannot be instantiated directly")
show("method without options", lambda: ray.method(f) is f)
show("num_gpus=1.5 at decoration", lambda: bool(ray.remote(num_gpus=1.5)(f)))
