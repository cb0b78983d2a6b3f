"""Runtime environments: variables, folders, modules, what children inherit, wrong ones."""

import os
import tempfile

import ray
from outcomes import show

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "here.txt"), "w") as file:
    file.write("content")
with open(os.path.join(folder, "own_module.py"), "w") as file:
    file.write("VALUE = 41\n")
package = os.path.join(tempfile.mkdtemp(), "own_package")
os.makedirs(package)
with open(os.path.join(package, "__init__.py"), "w") as file:
    file.write("VALUE = 42\n")
ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    runtime_env={"env_vars": {"OF_JOB": "job", "BOTH": "job"}, "working_dir": folder},
)


@ray.remote(num_cpus=0)
def variable(*names):
    return [os.environ.get(name) for name in names]


@ray.remote(num_cpus=0)
def child(*names):
    return ray.get(variable.remote(*names))


@ray.remote(num_cpus=0)
class A:
    def variable(self, name):
        return os.environ.get(name)

    def child(self, name):
        return ray.get(variable.remote(name))


@ray.remote(num_cpus=0)
def read(name):
    return open(name).read()


@ray.remote(num_cpus=0)
def imported(name):
    return __import__(name).VALUE


@ray.remote(num_cpus=0)
def environment():
    return ray.get_runtime_context().runtime_env.get("env_vars")


@ray.remote(num_cpus=0)
def pid():
    return os.getpid()


own = {"env_vars": {"OF_TASK": "task", "BOTH": "task"}}
names = ("OF_JOB", "OF_TASK", "BOTH")
show("of the job", lambda: ray.get(variable.remote(*names)))
show("of the task", lambda: ray.get(variable.options(runtime_env=own).remote(*names)))
show("of the job again", lambda: ray.get(variable.remote(*names)))
show("inherited by children", lambda: ray.get(child.options(runtime_env=own).remote(*names)))
show("of an actor", lambda: ray.get(A.options(runtime_env=own).remote().variable.remote("BOTH")))
show("inherited from an actor", lambda: ray.get(A.options(runtime_env=own).remote().child.remote("BOTH")))
show("in the driver", lambda: os.environ.get("OF_JOB"))
show(
    "the decorator's",
    lambda: ray.get(ray.remote(num_cpus=0, runtime_env=own)(lambda: os.environ["BOTH"]).remote()),
)
show(
    "as a RuntimeEnv",
    lambda: ray.get(
        variable.options(runtime_env=ray.runtime_env.RuntimeEnv(env_vars={"BOTH": "typed"})).remote("BOTH")
    ),
)
show("an empty one", lambda: ray.get(variable.options(runtime_env={}).remote("BOTH")))
show("None", lambda: ray.get(variable.options(runtime_env=None).remote("BOTH")))
show("the context's", lambda: ray.get(environment.remote()))
show("the context's in a task", lambda: ray.get(environment.options(runtime_env=own).remote()))
show("the driver's context", lambda: ray.get_runtime_context().runtime_env["env_vars"])
show(
    "expanded",
    lambda: ray.get(
        variable.options(runtime_env={"env_vars": {"NEW": "${OF_JOB}:x", "OF_JOB": "y"}}).remote("OF_JOB")
    ),
)
show("a file", lambda: ray.get(read.remote("here.txt")))
show("a module", lambda: ray.get(imported.remote("own_module")))
show(
    "the folder is another",
    lambda: ray.get(ray.remote(num_cpus=0)(lambda: os.getcwd()).remote()) != os.getcwd(),
)
show(
    "a package",
    lambda: ray.get(imported.options(runtime_env={"py_modules": [package]}).remote("own_package")),
)
show("no such package", lambda: ray.get(imported.remote("own_package")))
show(
    "PYTHONPATH",
    lambda: ray.get(
        ray.remote(num_cpus=0, runtime_env={"env_vars": {"PYTHONUNBUFFERED": "1"}})(
            lambda: os.environ["PYTHONUNBUFFERED"]
        ).remote()
    ),
)
show(
    "the same worker for one environment",
    lambda: len(set(ray.get([pid.options(runtime_env=own).remote() for _ in range(3)]))) <= 3,
)
show(
    "other workers for another",
    lambda: ray.get(pid.remote()) != ray.get(pid.options(runtime_env=own).remote()),
)
for name, given in {
    "a list": [1],
    "text": "x",
    "env_vars as a list": {"env_vars": ["a"]},
    "a number": {"env_vars": {"a": 1}},
    "working_dir as a number": {"working_dir": 5},
    "a folder that is not there": {"working_dir": "/nothing/here"},
    "py_modules as text": {"py_modules": "x"},
    "pip and conda": {"pip": ["a"], "conda": "b"},
    "pip and uv": {"pip": ["a"], "uv": ["b"]},
    "pip as a number": {"pip": 5},
    "config as text": {"config": "x"},
    "a negative time": {"config": {"setup_timeout_seconds": -5}},
}.items():
    show(
        f"wrong: {name}",
        lambda given=given: ray.get(variable.options(runtime_env=given).remote("x"), timeout=30),
    )
