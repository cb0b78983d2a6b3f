"""What runs again when a node is lost, how often, and what is said of what was there.

Each situation yields where the node is to be lost.
"""

import os
import tempfile
import time

import numpy
import ray
from outcomes import show, wait_until
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

SIZE = 1_000_000
SECONDS = 40
folder = tempfile.TemporaryDirectory()
cluster = Cluster()
cluster.add_node(num_cpus=2, resources={"head": 1}, object_store_memory=80_000_000, include_dashboard=False)
ray.init(address=cluster.address, log_to_driver=False)


def far_node():
    return cluster.add_node(num_cpus=2, resources={"far": 20}, object_store_memory=80_000_000)


node = far_node()


def lose_node():
    """The far node dies, and another one comes."""
    global node
    cluster.remove_node(node, allow_graceful=False)
    node = far_node()


def note(name):
    with open(os.path.join(folder.name, name), "a") as file:
        file.write("x")


def runs(name):
    path = os.path.join(folder.name, name)
    return os.path.getsize(path) if os.path.exists(path) else 0


FAR = {"resources": {"far": 0.1}, "num_cpus": 0}


@ray.remote(**FAR)
def make(name, fill=1):
    note(name)
    return numpy.full(SIZE, fill, dtype=numpy.uint8)


@ray.remote(num_returns=2, **FAR)
def two(name):
    note(name)
    return numpy.ones(SIZE, dtype=numpy.uint8), numpy.full(SIZE, 2, dtype=numpy.uint8)


@ray.remote(**FAR)
def items(name):
    note(name)
    for fill in (1, 2, 3):
        yield numpy.full(SIZE, fill, dtype=numpy.uint8)


@ray.remote(**FAR)
def outer(name):
    return [make.remote(name)]


@ray.remote(**FAR)
def later(name, release):
    note(name)
    while not os.path.exists(release):
        time.sleep(0.01)
    return runs(name)


@ray.remote(num_cpus=0)
def first(value):
    return int(value[0])


@ray.remote(num_cpus=0)
def first_of(references):
    return [int(ray.get(reference)[0]) for reference in references]


@ray.remote(num_cpus=0)
class Near:
    def first(self, value):
        return int(value[0])


@ray.remote(**FAR)
class Far:
    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1
        return self.calls

    def node(self):
        return ray.get_runtime_context().get_node_id()

    def restarted(self):
        return ray.get_runtime_context().was_current_actor_reconstructed

    def wait(self, name, release):
        note(name)
        while not os.path.exists(release):
            time.sleep(0.01)
        return runs(name)


def done(*references):
    ray.wait(list(references), num_returns=len(references), fetch_local=False, timeout=SECONDS)
    return references


def get(reference):
    return ray.get(reference, timeout=SECONDS)


def both_results():
    one, other = done(*two.remote("two"))
    yield
    return [int(get(one)[0]), int(get(other)[0]), runs("two")]


def one_of_two():
    one, other = done(*two.remote("one of two"))
    get(one)
    yield
    return [int(get(one)[0]), int(get(other)[0]), runs("one of two")]


def copied_before():
    (value,) = done(make.remote("copied"))
    get(first.options(resources={"head": 0.1}).remote(value))
    yield
    return [int(get(value)[0]), runs("copied")]


def read_twice():
    (value,) = done(make.remote("read twice"))
    yield
    return [get(first.remote(value)), get(first.remote(value)), runs("read twice")]


def lost_twice():
    (value,) = done(make.remote("lost twice"))
    found = []
    for _ in range(2):
        yield
        done(value)
        found.append(get(first.options(**FAR).remote(value)))
    return [*found, runs("lost twice")]


def more_often_than_retries():
    (value,) = done(make.options(max_retries=1).remote("one retry"))
    for _ in range(2):
        yield
        get(first.options(**FAR).remote(value))
    return runs("one retry")


def for_an_actor():
    near = Near.remote()
    (value,) = done(make.remote("for an actor", 3))
    yield
    return get(near.first.remote(value))


def inside_a_list():
    values = done(make.remote("in a list", 4), make.remote("in a list", 5))
    yield
    return [get(first_of.remote(values)), runs("in a list")]


def of_a_nested_task():
    (value,) = get(outer.remote("nested"))
    done(value)
    yield
    return [int(get(value)[0]), runs("nested")]


def stream():
    references = list(items.remote("stream"))
    done(*references)
    yield
    return [[int(get(reference)[0]) for reference in references], runs("stream")]


def both_of_a_chain():
    (value,) = done(make.remote("chain"))
    (double,) = done(ray.remote(**FAR)(lambda value: value * 2).remote(value))
    yield
    return [int(get(double)[0]), int(get(value)[0]), runs("chain")]


def input_dropped():
    (value,) = done(make.remote("dropped"))
    (double,) = done(ray.remote(**FAR)(lambda value: value * 2).remote(value))
    del value
    yield
    return [int(get(double)[0]), runs("dropped")]


def wait_fetches():
    (value,) = done(make.remote("wait"))
    yield
    ready, _ = ray.wait([value], timeout=SECONDS)
    return [len(ready), int(get(value)[0]), runs("wait")]


def locations():
    (value,) = done(make.remote("located"))
    where = ray.experimental.get_object_locations([value])[value]["node_ids"] == [node.node_id]
    yield
    get(value)
    here = ray.get_runtime_context().get_node_id()
    return [where, here in ray.experimental.get_object_locations([value])[value]["node_ids"]]


def put_by_the_driver():
    value = ray.put(numpy.full(SIZE, 7, dtype=numpy.uint8))
    get(first.options(**FAR).remote(value))
    yield
    return [int(get(value)[0]), get(first.options(**FAR).remote(value))]


def running(**options):
    name = f"running {options}"
    release = os.path.join(folder.name, f"release {options}")
    reference = later.options(**options).remote(name, release)
    started = wait_until(lambda: runs(name) == 1)
    yield
    open(release, "w").close()
    return [started, get(reference)]


def actor_ends():
    far = Far.remote()
    get(far.call.remote())
    yield
    return get(far.call.remote())


def actor_restarts():
    far = Far.options(max_restarts=1, max_task_retries=-1).remote()
    before = [get(far.call.remote()), get(far.call.remote()), get(far.restarted.remote())]
    yield
    return [*before, get(far.call.remote()), get(far.restarted.remote())]


def actor_moves():
    far = Far.options(max_restarts=1, max_task_retries=-1).remote()
    before = get(far.node.remote())
    yield
    return get(far.node.remote()) == before


def restarts_are_used_up():
    far = Far.options(max_restarts=1, max_task_retries=-1).remote()
    for _ in range(2):
        get(far.call.remote())
        yield
    return get(far.call.remote())


def running_call(name, **options):
    far = Far.options(max_restarts=1, **options).remote()
    release = os.path.join(folder.name, f"release {name}")
    reference = far.wait.remote(name, release)
    started = wait_until(lambda: runs(name) == 1)
    yield
    open(release, "w").close()
    return [started, get(reference)]


def named():
    far = Far.options(name="far", max_restarts=1, max_task_retries=-1).remote()
    get(far.call.remote())
    yield
    return get(ray.get_actor("far").call.remote())


def named_and_dead():
    far = Far.options(name="dead").remote()
    get(far.call.remote())
    yield

    def is_gone():
        try:
            get(ray.get_actor("dead").call.remote())
        except (ValueError, ray.exceptions.RayActorError):
            return True
        return False

    return [wait_until(is_gone), get(Near.options(name="alive").remote().first.remote([2]))]


def group():
    found = placement_group([{"far": 1}])
    get(found.ready())
    before = placement_group_table(found)["bundles_to_node_id"][0] == node.node_id
    yield

    def moved():
        return placement_group_table(found)["bundles_to_node_id"].get(0) == node.node_id

    after = wait_until(moved, SECONDS)
    state = placement_group_table(found)["state"]
    remove_placement_group(found)
    return [before, after, state]


def nodes():
    lost = node.node_id
    yield
    alive = {row["NodeID"]: row["Alive"] for row in ray.nodes()}
    return [alive.get(lost, False), alive[node.node_id]]


def resources():
    yield
    return wait_until(lambda: ray.cluster_resources().get("far") == 20, SECONDS)


SITUATIONS = {
    "both results of a task": both_results,
    "one of two was copied": one_of_two,
    "copied before": copied_before,
    "read twice": read_twice,
    "lost twice": lost_twice,
    "lost more often than it may be retried": more_often_than_retries,
    "an argument of a call": for_an_actor,
    "inside of a list": inside_a_list,
    "of a nested task": of_a_nested_task,
    "items of a stream": stream,
    "a value and what was made of it": both_of_a_chain,
    "what was made of a value that is dropped": input_dropped,
    "wait makes it again": wait_fetches,
    "its locations": locations,
    "put by the driver": put_by_the_driver,
    "a task that ran": running,
    "a task that ran, without retries": lambda: running(max_retries=0),
    "an actor": actor_ends,
    "an actor that restarts": actor_restarts,
    "an actor is on another node": actor_moves,
    "an actor without restarts left": restarts_are_used_up,
    "a call that ran": lambda: running_call("no retries"),
    "a call that ran and is retried": lambda: running_call("retried", max_task_retries=-1),
    "an actor with a name": named,
    "a dead actor with a name": named_and_dead,
    "a placement group": group,
    "the nodes": nodes,
    "the resources": resources,
}


def go_on(situation, steps):
    """Runs a situation to its next loss of a node; whether there is one."""
    try:
        next(steps)
        return True
    except StopIteration as end:
        value = end.value
        show(situation, lambda: value)
    except Exception as error:
        failure = error

        def fail():
            raise failure

        show(situation, fail, "The actor died because its node has died.")
    return False


# A node is lost for all of them at once: Ray needs many seconds to see that.
left = {situation: function() for situation, function in SITUATIONS.items()}
while True:
    left = {situation: steps for situation, steps in left.items() if go_on(situation, steps)}
    if not left:
        break
    lose_node()
ray.shutdown()
cluster.shutdown()
