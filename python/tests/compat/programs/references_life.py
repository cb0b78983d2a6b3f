"""References: who keeps a value, what is freed, ids, nesting, closures."""

import copy
import gc
import pickle

import numpy
import ray
from outcomes import show, start, wait_until

start(object_store_memory=200_000_000)
MEGABYTE = 1_000_000


def free():
    return ray.available_resources().get("object_store_memory", 0)


@ray.remote(num_cpus=0)
class Keeper:
    def keep(self, container):
        self.kept = container
        return 1

    def drop(self):
        self.kept = None

    def get(self):
        return ray.get(self.kept[0])

    def give(self):
        return self.kept


@ray.remote(num_cpus=0)
def same(value):
    return value


@ray.remote(num_cpus=0)
def nested(value):
    return [ray.put(value)]


@ray.remote(num_cpus=0)
def deep(container):
    return ray.get(ray.get(container[0])[0])


@ray.remote(num_cpus=0)
def kinds_of(*args, **kwargs):
    return [type(arg).__name__ for arg in (*args, *kwargs.values())]


before = free()


def freed():
    return wait_until(lambda: free() >= before - MEGABYTE)


def dropped():
    reference = ray.put(numpy.ones(4 * MEGABYTE))
    held = wait_until(lambda: free() < before - 20 * MEGABYTE)
    del reference
    return [held, freed()]


def kept_by_an_actor():
    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put(numpy.ones(4 * MEGABYTE))]))
    gc.collect()
    held = int(ray.get(keeper.get.remote()).sum())
    ray.get(keeper.drop.remote())
    return [held, freed()]


def kept_by_a_value():
    outer = ray.put([ray.put(numpy.ones(4 * MEGABYTE))])
    gc.collect()
    found = int(ray.get(ray.get(outer)[0]).sum())
    del outer
    return [found, freed()]


def passed_through():
    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put("value")]))
    (reference,) = ray.get(keeper.give.remote())
    ray.kill(keeper)
    return ray.get(reference, timeout=20)


def made_by_a_task():
    (reference,) = ray.get(nested.remote(7))
    return ray.get(reference)


def closure():
    reference = ray.put(11)
    return ray.get(ray.remote(num_cpus=0)(lambda: ray.get(reference)).remote())


def captured_by_a_class():
    reference = ray.put(12)

    @ray.remote(num_cpus=0)
    class Captures:
        def get(self):
            return ray.get(reference)

    return ray.get(Captures.remote().get.remote())


one, two = ray.put(1), same.remote(2)
show("dropped", dropped)
show("kept by an actor", kept_by_an_actor)
show("kept by a value", kept_by_a_value)
show("freed in the end", freed)
show("passed through an actor", passed_through)
show("made by a task", made_by_a_task)
show("closure", closure)
show("captured by a class", captured_by_a_class)
show("deep", lambda: ray.get(deep.remote([ray.put([ray.put(3)])])))
show("arguments", lambda: ray.get(kinds_of.remote(one, [one], (two,), key=two, other={"a": one})))
show("a reference of a reference", lambda: ray.get(ray.get(same.remote([one]))[0]))
show("equal to itself", lambda: one == copy.deepcopy(one))
show("not equal", lambda: one == two)
show("in a set", lambda: len({one, copy.copy(one), two}))
show("as a key", lambda: {one: "a"}[copy.copy(one)])
show("nil", lambda: [one.is_nil(), ray.ObjectRef.nil().is_nil()])
show("size", lambda: ray.ObjectRef.size() == len(one.binary()))
show("from its bytes", lambda: ray.ObjectRef(one.binary()) == one)
show("its job", lambda: one.job_id().hex() == ray.get_runtime_context().get_job_id())
show("its task", lambda: two.task_id().hex() == same.remote(1).task_id().hex())
show("two tasks", lambda: len({same.remote(1).task_id() for _ in range(3)}))
show(
    "returns of one task",
    lambda: len({ref.task_id() for ref in ray.remote(num_cpus=0, num_returns=2)(lambda: (1, 2)).remote()}),
)
show("text", lambda: one.hex() in repr(one))
show("compared with text", lambda: one == "x")
show("a dict of references", lambda: ray.get(list({"a": one, "b": two}.values())))
show("pickled", lambda: ray.get(pickle.loads(ray.cloudpickle.dumps(one))))
show("no index", lambda: one[0])
show("no iteration", lambda: list(one))
show("no truth", lambda: bool(one))
show("no arithmetic", lambda: one + 1)
show("put of a generator", lambda: bool(ray.put(number for number in range(3))))
show("put of a lock", lambda: bool(ray.put(__import__("threading").Lock())))
show("put of a function", lambda: ray.get(ray.put(lambda: 5))())
show("get of a dict", lambda: ray.get({"a": one}))
show("get of nested lists", lambda: ray.get([[one]]))
show("get of None", lambda: ray.get(None))
show("many", lambda: sum(ray.get([same.remote(number) for number in range(300)])))
show("the same twice", lambda: ray.get([one, one]))
show("a large result", lambda: int(ray.get(same.remote(numpy.ones(MEGABYTE))).sum()))
show("a large result is read-only", lambda: ray.get(same.remote(numpy.ones(MEGABYTE))).flags.writeable)
show(
    "a large argument is read-only",
    lambda: ray.get(ray.remote(num_cpus=0)(lambda value: value.flags.writeable).remote(numpy.ones(MEGABYTE))),
)
show(
    "a put one is read-only in a task",
    lambda: ray.get(
        ray.remote(num_cpus=0)(lambda value: value.flags.writeable).remote(ray.put(numpy.ones(MEGABYTE)))
    ),
)
show(
    "locations of a large one",
    lambda: (
        ray.experimental.get_object_locations([ref := ray.put(numpy.ones(MEGABYTE))])[ref]["node_ids"]
        == [ray.get_runtime_context().get_node_id()]
    ),
)
