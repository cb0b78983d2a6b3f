"""Tasks: arguments, returns, options, names, nesting, order, resources."""

import os
import time

import ray
from outcomes import show, start

start(resources={"x": 1}, namespace="space")


@ray.remote
def add(a, b=2, *args, c=3, **kwargs):
    """Adds."""
    return [a, b, list(args), c, sorted(kwargs)]


@ray.remote(num_cpus=0)
def same(value):
    return value


@ray.remote(num_cpus=0, num_returns=3)
def three():
    return 1, 2, 3


@ray.remote(num_cpus=0)
def fibonacci(n):
    return n if n < 2 else sum(ray.get([fibonacci.remote(n - 1), fibonacci.remote(n - 2)]))


@ray.remote(resources={"x": 1}, num_cpus=0)
def alone(seconds):
    begin = time.time()
    time.sleep(seconds)
    return begin, time.time()


@ray.remote(num_cpus=0)
def name():
    return [
        ray.get_runtime_context().get_task_name(),
        ray.get_runtime_context().get_task_function_name().split(".")[-1],
    ]


class Plain:
    @staticmethod
    def static(value):
        return value * 2


def overlap(spans):
    (_, first_end), (second_begin, _) = sorted(spans)
    return second_begin < first_end


def blocked():
    """A task that waits for another gives its CPU free."""

    @ray.remote(num_cpus=2)
    def inner():
        return 1

    @ray.remote(num_cpus=2)
    def outer():
        return ray.get(inner.remote())

    return ray.get(outer.remote(), timeout=30)


show("positional", lambda: ray.get(add.remote(1)))
show("keywords", lambda: ray.get(add.remote(a=1, b=5, c=6)))
show("more of both", lambda: ray.get(add.remote(1, 2, 3, 4, d=5)))
show("references as arguments", lambda: ray.get(add.remote(same.remote(1), c=same.remote(7))))
show("missing", lambda: add.remote())
show("twice", lambda: add.remote(1, a=2))
show("three returns", lambda: ray.get(three.remote()))
show("one of three", lambda: ray.get(three.remote()[1]))
show("no return", lambda: three.options(num_returns=0).remote())
show("too few returns", lambda: ray.get(three.options(num_returns=2).remote()))
show("more returns than values", lambda: ray.get(three.options(num_returns=4).remote()))
show("one return of a tuple", lambda: ray.get(three.options(num_returns=1).remote()))
show("not a tuple", lambda: ray.get(same.options(num_returns=2).remote(5)))
show("a list for two", lambda: ray.get(same.options(num_returns=2).remote([5, 6])))
show(
    "a generator for two",
    lambda: ray.get(ray.remote(num_cpus=0, num_returns=2)(lambda: iter([1, 2])).remote()),
)
show("None", lambda: ray.get(same.remote(None)))
show("recursion", lambda: ray.get(fibonacci.remote(6)))
show("one at a time", lambda: overlap(ray.get([alone.remote(0.3), alone.remote(0.3)])))
show("blocked in get", blocked)
show("documentation", lambda: add.__doc__)
show("name", lambda: add.__name__)
show("a name", lambda: ray.get(name.options(name="other").remote()))
show("no name", lambda: ray.get(name.remote()))
show("a lambda", lambda: ray.get(ray.remote(lambda: 5).remote()))
show("a static method", lambda: ray.get(ray.remote(Plain.static).remote(4)))
show("a builtin", lambda: ray.get(ray.remote(len).remote([1, 2])))
show("a partial", lambda: ray.get(ray.remote(__import__("functools").partial(max, 3)).remote(4)))


async def _async():
    return 1


show("async def", lambda: ray.get(ray.remote(_async).remote(), timeout=20))
show("remote of a number", lambda: ray.remote(5))
show("remote twice", lambda: ray.remote(add))
show("unknown option", lambda: add.options(nothing=1))
show(
    "options twice",
    lambda: (
        ray.get(add.options(num_cpus=1).options(num_cpus=0).remote(1))
        if hasattr(add.options(num_cpus=1), "options")
        else "none"
    ),
)
show("called", lambda: add(1))
show("another process", lambda: ray.get(ray.remote(lambda: os.getpid()).remote()) != os.getpid())


@ray.remote(num_cpus=0)
def mutable(value=[]):  # noqa: B006
    return len(value)


@ray.remote(num_cpus=0)
def changes(value):
    value.append(1)
    return len(value)


def copies():
    given = [0]
    return [ray.get(changes.remote(given)), len(given)]


show("a changed argument", copies)


def put_and_changed():
    given = [1]
    reference = ray.put(given)
    given.append(2)
    return ray.get(reference)


show("put, then changed", put_and_changed)
GLOBAL = 5


@ray.remote(num_cpus=0)
def uses_global():
    return GLOBAL


show("a global", lambda: ray.get(uses_global.remote()))
GLOBAL = 6
show("a global that changed later", lambda: ray.get(uses_global.remote()))
show("wait for the first", lambda: ray.get(ray.wait([same.remote(1), alone.remote(1)])[0]))


@ray.remote(num_cpus=0, max_calls=1)
def once():
    return os.getpid()


show("a process for each call", lambda: len({ray.get(once.remote()) for _ in range(3)}))
show("infeasible waits", lambda: ray.wait([same.options(num_cpus=100).remote(1)], timeout=0.3)[0])
show("a negative number of CPUs", lambda: add.options(num_cpus=-1))
show("too fine", lambda: add.options(num_cpus=0.00001).remote(1))
show("memory", lambda: ray.get(same.options(memory=1000).remote(1)))
show("SPREAD", lambda: ray.get(same.options(scheduling_strategy="SPREAD").remote(1)))
show("num_returns of None", lambda: ray.get(same.options(num_returns=None).remote(1)))
show("the accelerator", lambda: ray.wait([same.options(accelerator_type="A100").remote(1)], timeout=0.3)[0])
