"""init, shutdown, and what they refuse."""

import ray
from outcomes import show, start

show("before", ray.is_initialized)
show("default resources", lambda: ray.init(resources={"GPU": 1}), "cannot be a custom resource")
show("relative folder", lambda: ray.init(_temp_dir="relative"))
show("unknown keyword", lambda: ray.init(no_such_keyword=1))
start()
show("after", ray.is_initialized)
show("again", lambda: ray.init())
show("again, ignored", lambda: bool(ray.init(ignore_reinit_error=True)))
ray.shutdown()
show("after shutdown", ray.is_initialized)
show("shutdown again", ray.shutdown)
start(namespace="space")
show("namespace", lambda: ray.get_runtime_context().namespace)


@ray.remote
def f():
    return 1


show("a function", lambda: ray.get(f.remote()))
ray.shutdown()
start(job_config=ray.job_config.JobConfig(ray_namespace="from job config"))
show("namespace of the job", lambda: ray.get_runtime_context().namespace)
show("the same function", lambda: ray.get(f.remote()))
