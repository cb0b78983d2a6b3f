"""What programs do every day, and mistakes that they make: functions, classes, get, put, wait, contexts."""

import asyncio
import os
import pickle
import time
from functools import partial

import cloudpickle
import numpy
import ray
from outcomes import show, start

start(namespace="space")


@ray.remote
def function(x, y=2, *more, k=3, **rest):
    return [x, y, more, k, sorted(rest)]


@ray.remote(num_cpus=0.5)
def deep(number):
    return 1 if number == 0 else 1 + ray.get(deep.remote(number - 1))


class Base:
    def base(self):
        return "base"


@ray.remote(num_cpus=0)
class Derived(Base):
    def own(self):
        return super().base()


@ray.remote(num_cpus=0)
class Counter:
    constant = 5

    def __init__(self, count=0):
        self.count = count

    def add(self, by=1):
        self.count += by
        return self.count

    @staticmethod
    def of_none(value):
        return value

    @classmethod
    def of_class(cls):
        return cls.__name__

    @property
    def shown(self):
        return 1

    def myself(self):
        return ray.get_runtime_context().current_actor

    def __call__(self, value):
        return value

    def three(self):
        return 1, 2, 3

    def items(self):
        yield 1
        yield 2

    def keyword(self, *, a):
        return a


def cause():
    try:
        ray.get(ray.remote(lambda: {}["a"]).remote())
    except KeyError as error:
        return [
            type(error).__name__,
            type(error.cause).__name__,
            isinstance(error, ray.exceptions.RayTaskError),
        ]


async def awaited(reference):
    return await reference


async def gathered():
    return await asyncio.gather(*[function.remote(number) for number in range(3)])


async def wrapped():
    return await asyncio.wrap_future(ray.put(3).future())


def is_same(reference):
    return [reference == reference, reference != ray.put(1), len({reference, reference})]


def changed():
    values = [0]
    return [ray.get(ray.remote(lambda found: found.append(1)).remote(values)), values]


def killed_twice():
    actor = Counter.remote()
    return [ray.kill(actor), ray.kill(actor)]


counter = Counter.remote(3)
context = ray.get_runtime_context
node = ray.nodes()[0]

show("a keyword more", lambda: ray.get(function.remote(1, z=3)))
show("no argument", lambda: function.remote(), "missing a required argument")
show("more arguments", lambda: ray.get(function.remote(1, 2, 3, 4)))
show("300 arguments", lambda: ray.get(ray.remote(lambda *values: len(values)).remote(*range(300))))
show("called directly", lambda: function(1), "cannot be called directly")
show("a lambda", lambda: ray.get(ray.remote(lambda value: value + 1).remote(1)))
show("a partial function", lambda: ray.remote(partial(pow, 2)))
show("a number", lambda: ray.remote(3))
show("an unknown option", lambda: ray.remote(num_cpus=1, foo=2)(lambda: 1))
show("an unknown option of a call", lambda: function.options(foo=1))
show("fewer CPUs than none", lambda: function.options(num_cpus=-1).remote(1))
show("a task in a task", lambda: ray.get(ray.remote(lambda: ray.get(function.remote(1))).remote()))
show("many levels", lambda: ray.get(deep.remote(4)))
show("an argument that is changed", changed)
show("an exception", lambda: ray.get(ray.remote(lambda: 1 / 0).remote()), "division by zero")
show("its cause", cause)
show(
    "its process is used once",
    lambda: len({ray.get(ray.remote(max_calls=1)(lambda: os.getpid()).remote()) for _ in (1, 2)}),
)

show("calls in order", lambda: ray.get([counter.add.remote() for _ in range(3)]))
show("a wrong keyword", lambda: counter.add.remote(bye=1))
show("a static method", lambda: ray.get(counter.of_none.remote(4)))
show("a class method", lambda: ray.get(counter.of_class.remote()))
show("no such method", lambda: counter.nothing.remote())
show("a property", lambda: ray.get(counter.shown.remote()))
show("itself", lambda: ray.get(ray.get(counter.myself.remote()).add.remote()))
show("__call__", lambda: ray.get(counter.__call__.remote(4)))
show("a method called directly", lambda: counter.add(), "cannot be called directly")
show("three returns", lambda: ray.get(counter.three.options(num_returns=3).remote()))
show("three for two", lambda: ray.get(counter.three.options(num_returns=2).remote()))
show("items", lambda: [ray.get(item) for item in counter.items.options(num_returns="streaming").remote()])
show("items without an option", lambda: [ray.get(item) for item in counter.items.remote()])
show("a keyword only", lambda: ray.get(counter.keyword.remote(a=1)))
show("a keyword only, not named", lambda: counter.keyword.remote(1))
show("a base class", lambda: ray.get([(found := Derived.remote()).base.remote(), found.own.remote()]))
show(
    "a handle in a list",
    lambda: ray.get(ray.remote(lambda found: ray.get(found[0].add.remote(0)) > 0).remote([counter])),
)
show("a pickled handle", lambda: ray.get(pickle.loads(pickle.dumps(counter)).add.remote(0)) > 0)
show("a pickled function", lambda: ray.get(cloudpickle.loads(cloudpickle.dumps(function)).remote(1)))
show("killed twice", killed_twice)
show("kill of a number", lambda: ray.kill(3))
show("kill of a reference", lambda: ray.kill(ray.put(1)))

show("get of a number", lambda: ray.get(3))
show("get of numbers", lambda: ray.get([1]))
show("get of a tuple", lambda: ray.get((ray.put(1),)))
show("get of a dict", lambda: ray.get({"a": ray.put(1)}))
show("get of a list in a list", lambda: ray.get([[ray.put(1)]]))
show("get of none", lambda: ray.get([]))
show("get that takes too long", lambda: ray.get(ray.remote(lambda: time.sleep(5)).remote(), timeout=0.1))
show("get without time", lambda: ray.get(ray.put(1), timeout=0))
show("put of a reference", lambda: ray.put(ray.put(1)))
show("put of an array in a dict", lambda: len(ray.get(ray.put({"a": numpy.ones(3)}))["a"]))
show("wait for none", lambda: ray.wait([]))
show("wait for one twice", lambda: (found := ray.put(1)) and ray.wait([found, found]))
show("wait for too many", lambda: ray.wait([ray.put(1)], num_returns=2))
show("wait for zero", lambda: ray.wait([ray.put(1)], num_returns=0))
show("wait for a reference", lambda: ray.wait(ray.put(1)))
show("wait for numbers", lambda: ray.wait([1]))
show(
    "wait for some",
    lambda: [len(part) for part in ray.wait([function.remote(n) for n in range(4)], num_returns=3)],
)
show("truth of a reference", lambda: bool(ray.put(1)))
show("items of a reference", lambda: list(ray.put(1)))
show("equal references", lambda: is_same(ray.put(1)))
show("await", lambda: asyncio.run(awaited(ray.put(3))))
show("gather", lambda: len(asyncio.run(gathered())))
show("a future", lambda: ray.put(3).future().result())
show("a future that is wrapped", lambda: asyncio.run(wrapped()))
show("cancel of a number", lambda: ray.cancel(3))
show("cancel of a put", lambda: ray.cancel(ray.put(3)))

show("init again", lambda: ray.init())
show("is_initialized", ray.is_initialized)
show("the driver's task", lambda: context().get_task_id() is not None)
show("the driver's actor", lambda: context().get_actor_id())
show(
    "the driver's ids",
    lambda: [len(found) > 0 for found in (context().get_job_id(), context().get_worker_id())],
)
show("the context as a dict", lambda: sorted(context().get()))
show("the namespace", lambda: context().namespace)
show("CPUs", lambda: ray.cluster_resources()["CPU"])
show(
    "the node",
    lambda: (
        {"NodeID", "Alive", "NodeManagerAddress", "Resources", "NodeManagerHostname", "alive"} <= set(node)
    ),
)
show("text of a function", lambda: "RemoteFunction" in repr(function))
show("text of a handle", lambda: repr(counter).startswith("Actor(Counter,"))
show("text of a reference", lambda: str(ray.put(1)).startswith("ObjectRef("))
