"""Programs as people write them, on a cluster of three nodes: one CPU each, and a driver on the first."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import aktis
from aktis import exceptions
from aktis.cluster_utils import Cluster
from aktis.util import ActorPool, debug
from aktis.util.queue import Queue
from support import Latch, wait_until

SECONDS = 30
NODES = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "labels": {"place": "0"}}) as cluster:
        for number in range(1, NODES):
            cluster.add_node(num_cpus=1, resources={f"place{number}": 10}, labels={"place": str(number)})
        yield cluster


@pytest.fixture(autouse=True)
def driver(cluster: Cluster, no_session: None) -> Any:
    return aktis.init(cluster.address, namespace="programs")


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=SECONDS)


def on(number: int) -> dict[str, float]:
    """What only one of the nodes has."""
    return {f"place{number}": 1}


def where() -> str:
    return aktis.get_runtime_context().get_node_id()


# --- tasks and objects ----------------------------------------------------------------------------


def test_a_tree_of_sums_over_large_arrays() -> None:
    @aktis.remote
    def block(seed: int) -> Any:
        return numpy.full(200_000, seed, dtype=numpy.int64)

    @aktis.remote
    def add(a: Any, b: Any) -> Any:
        return a + b

    level = [block.remote(seed) for seed in range(8)]
    while len(level) > 1:
        level = [add.remote(a, b) for a, b in zip(level[::2], level[1::2])]
    total = get(level[0])
    assert (total == sum(range(8))).all()


def test_a_large_array_is_read_on_all_nodes() -> None:
    @aktis.remote(num_cpus=0)
    def total(array: Any) -> tuple[str, int]:
        return where(), int(array.sum())

    array = aktis.put(numpy.arange(300_000))
    places = [total.remote(array)] + [total.options(resources=on(number)).remote(array) for number in (1, 2)]
    answers = get(places)
    assert {answer for _, answer in answers} == {300_000 * 299_999 // 2}
    assert len({node for node, _ in answers}) == NODES


def test_nested_tasks_spread() -> None:
    @aktis.remote
    def fibonacci(number: int) -> int:
        if number < 2:
            return number
        return sum(aktis.get([fibonacci.remote(number - 1), fibonacci.remote(number - 2)]))

    assert get(fibonacci.remote(7)) == 13


def test_a_generator_feeds_tasks_on_another_node() -> None:
    @aktis.remote(resources=on(1), num_cpus=0)
    def produce(count: int) -> Iterator[Any]:
        for number in range(count):
            yield numpy.full(20_000, number)

    @aktis.remote(resources=on(2), num_cpus=0)
    def consume(array: Any) -> int:
        return int(array[0])

    assert get([consume.remote(item) for item in produce.remote(10)]) == list(range(10))


def test_a_generator_is_consumed_where_it_was_not_made() -> None:
    @aktis.remote(resources=on(1), num_cpus=0)
    def produce() -> Iterator[int]:
        yield from range(20)

    @aktis.remote(resources=on(2), num_cpus=0)
    def collect() -> list[int]:
        return [aktis.get(item) for item in produce.remote()]

    assert get(collect.remote()) == list(range(20))


# --- actors ---------------------------------------------------------------------------------------


def test_a_parameter_server() -> None:
    @aktis.remote(resources=on(1), num_cpus=0)
    class Server:
        def __init__(self, size: int) -> None:
            self.weights = numpy.zeros(size)

        def push(self, gradient: Any) -> None:
            self.weights = self.weights + gradient

        def pull(self) -> Any:
            return self.weights

    @aktis.remote(num_cpus=0)
    def train(server: Any, steps: int) -> float:
        for _ in range(steps):
            weights = aktis.get(server.pull.remote())
            aktis.get(server.push.remote(numpy.ones_like(weights)))
        return float(aktis.get(server.pull.remote())[0])

    server = Server.remote(30_000)
    workers = [train.options(resources=on(number)).remote(server, 5) for number in (1, 2)]
    workers.append(train.remote(server, 5))
    assert all(5 <= seen <= 15 for seen in get(workers))
    assert (get(server.pull.remote()) == 15).all()


def test_an_actor_pool() -> None:
    @aktis.remote(num_cpus=0)
    class Worker:
        def double(self, number: int) -> tuple[str, int]:
            return where(), 2 * number

    options: list[dict[str, float]] = [{}, on(1), on(2)]
    pool = ActorPool([Worker.options(resources=resources).remote() for resources in options])
    answers = list(pool.map(lambda actor, number: actor.double.remote(number), list(range(30))))
    assert [number for _, number in answers] == [2 * number for number in range(30)]
    assert len({node for node, _ in answers}) == NODES


def test_a_queue_between_nodes() -> None:
    queue = Queue(maxsize=5, actor_options={"num_cpus": 0, "resources": on(1)})

    @aktis.remote(num_cpus=0, resources=on(2))
    def produce(queue: Any, count: int) -> None:
        for number in range(count):
            queue.put(number)

    @aktis.remote(num_cpus=0)
    def consume(queue: Any, count: int) -> list[int]:
        return [queue.get() for _ in range(count)]

    made = produce.remote(queue, 40)
    assert get(consume.remote(queue, 40)) == list(range(40))
    get(made)
    queue.shutdown()


def test_calls_of_one_caller_arrive_in_order_from_every_node() -> None:
    @aktis.remote(num_cpus=0, resources=on(1))
    class Log:
        def __init__(self) -> None:
            self.seen: dict[int, list[int]] = {}

        def note(self, caller: int, number: int) -> None:
            self.seen.setdefault(caller, []).append(number)

        def all(self) -> dict[int, list[int]]:
            return self.seen

    @aktis.remote(num_cpus=0)
    def call(log: Any, caller: int) -> None:
        aktis.get([log.note.remote(caller, number) for number in range(100)])

    log = Log.remote()
    callers = [call.remote(log, 0)]
    callers += [call.options(resources=on(number)).remote(log, number) for number in (1, 2)]
    get(callers)
    assert get(log.all.remote()) == {caller: list(range(100)) for caller in range(NODES)}


@aktis.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Fragile:
    """Dies at the call that it is told, once, and notes what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[int] = []

    def note(self, number: int) -> None:
        if number == 20 and not (self.folder / "died").exists():
            (self.folder / "died").touch()
            os._exit(1)
        self.seen.append(number)

    def all(self) -> list[int]:
        return self.seen


@aktis.remote(num_cpus=0)
def call_fragile(actor: Any) -> None:
    aktis.get([actor.note.remote(number) for number in range(50)])


@pytest.mark.parametrize("caller", [None, 1, 2], ids=["driver", "its node", "another node"])
def test_an_actor_restarts_and_its_callers_go_on_in_order(tmp_path: Path, caller: int | None) -> None:
    actor = Fragile.options(resources=on(1)).remote(tmp_path)
    if caller is None:
        get([actor.note.remote(number) for number in range(50)])
    else:
        get(call_fragile.options(resources=on(caller)).remote(actor))
    seen = get(actor.all.remote())
    assert seen[-30:] == list(range(20, 50)), seen
    assert seen == sorted(seen)


@pytest.mark.parametrize("caller", [1, 2], ids=["its node", "another node"])
def test_a_task_elsewhere_ends_an_actor(caller: int, tmp_path: Path) -> None:
    @aktis.remote(num_cpus=0)
    def kill(actor: Any, no_restart: bool) -> None:
        aktis.kill(actor, no_restart=no_restart)

    elsewhere = kill.options(resources=on(caller))
    actor = Fragile.options(resources=on(1), max_task_retries=0).remote(tmp_path)
    get(actor.note.remote(1))
    get(elsewhere.remote(actor, False))
    wait_until(lambda: lost_or(actor) == [], what="a new life")
    get(elsewhere.remote(actor, True))
    wait_until(lambda: isinstance(lost_or(actor), exceptions.ActorDiedError), what="its end")


def lost_or(actor: Any) -> Any:
    try:
        return get(actor.all.remote())
    except exceptions.RayActorError as error:
        return error


def test_named_and_detached_actors_are_there_for_the_next_driver(cluster: Cluster) -> None:
    @aktis.remote(num_cpus=0, resources=on(2))
    class Counter:
        def __init__(self) -> None:
            self.total = 0

        def add(self) -> int:
            self.total += 1
            return self.total

    counter = Counter.options(name="counter", lifetime="detached").remote()
    assert get(counter.add.remote()) == 1

    @aktis.remote(num_cpus=0, resources=on(1))
    def add_by_name() -> int:
        return aktis.get(aktis.get_actor("counter").add.remote())

    assert get(add_by_name.remote()) == 2
    program = """
        import sys
        import aktis
        aktis.init(sys.argv[1], namespace="programs")
        print(aktis.get(aktis.get_actor("counter").add.remote(), timeout=30))
        @aktis.remote(num_cpus=0, resources={"place1": 1})
        def elsewhere():
            return aktis.get(aktis.get_actor("counter").add.remote())
        print(aktis.get(elsewhere.remote(), timeout=30))
    """
    for node in cluster.list_all_nodes()[:2]:
        command = [sys.executable, "-c", textwrap.dedent(program), node.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    assert get(counter.add.remote()) == 7
    aktis.kill(counter)
    wait_until(lambda: "counter" not in aktis.util.list_named_actors())


def test_actors_that_are_dropped_free_their_node() -> None:
    @aktis.remote(resources={"place1": 10}, num_cpus=0)
    class Whole:
        def where(self) -> str:
            return where()

    for _ in range(3):
        assert get(Whole.remote().where.remote())


@aktis.remote(num_cpus=0, max_restarts=-1)
class Reborn:
    def __init__(self) -> None:
        self.calls = 0

    def add(self) -> int:
        self.calls += 1
        return self.calls


def kill_and_call(actor: Any) -> list[int]:
    """Several times: whoever kills an actor that lives again calls its next life."""
    for _ in range(3):
        aktis.get(actor.add.remote(), timeout=SECONDS)
        aktis.kill(actor, no_restart=False)
        counts = aktis.get([actor.add.remote() for _ in range(3)], timeout=SECONDS)
        if counts != [1, 2, 3]:
            return counts
    return counts


@pytest.mark.parametrize("killer", [None, 1, 2])
def test_calls_after_a_kill_are_of_the_next_life(killer: int | None) -> None:
    """Killed by the node in whose care it is, by that where it lives, and by a third."""
    actor = Reborn.options(resources=on(1)).remote()
    if killer is None:
        assert kill_and_call(actor) == [1, 2, 3]
    else:
        there = aktis.remote(kill_and_call).options(num_cpus=0, resources=on(killer))
        assert get(there.remote(actor)) == [1, 2, 3]


# --- cancelling, and nodes that go ----------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
def test_a_task_on_another_node_is_cancelled(latch: Latch, force: bool) -> None:
    @aktis.remote(num_cpus=0, resources=on(1))
    def waits(latch: Latch) -> None:
        latch.wait()

    ref = waits.remote(latch)
    (pid,) = latch.wait_for_arrivals(1)
    aktis.cancel(ref, force=force)
    with pytest.raises(exceptions.TaskCancelledError):
        get(ref)

    @aktis.remote(num_cpus=0, resources={"place1": 10})
    def takes_all() -> bool:
        return True

    assert get(takes_all.remote()), "its place is free again"
    if force:
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_worker_that_dies_elsewhere_is_explained() -> None:
    @aktis.remote(num_cpus=0, resources=on(2), max_retries=1)
    def dies() -> None:
        print("goodbye", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 11)

    with pytest.raises(exceptions.WorkerCrashedError, match=r"dies.*SIGSEGV(.|\n)*goodbye"):
        get(dies.remote())


def test_the_cluster_is_seen_from_inside(cluster: Cluster) -> None:
    @aktis.remote(num_cpus=0, resources=on(2))
    def look() -> tuple[set[str], float]:
        return {node["NodeID"] for node in aktis.nodes() if node["Alive"]}, aktis.cluster_resources()["CPU"]

    nodes, cpus = get(look.remote())
    assert nodes == {node.node_id for node in cluster.list_all_nodes()}
    assert cpus == NODES
    labels = {node["Labels"]["place"] for node in aktis.nodes()}
    assert labels == {"0", "1", "2"}


def test_keys_are_the_same_everywhere() -> None:
    @aktis.remote(num_cpus=0)
    def change(key: str) -> bytes | None:
        found = debug.kv_get(key)
        debug.kv_put(key, f"from {where()}")
        return found

    assert debug.kv_put("key", b"first")
    assert get(change.options(resources=on(1)).remote("key")) == b"first"
    found = get(change.options(resources=on(2)).remote("key"))
    assert found is not None and found.startswith(b"from ")
    assert debug.kv_get("key") not in (b"first", found)
    assert debug.kv_list("k") == [b"key"]
    assert debug.kv_del("key") == 1
    assert not debug.kv_exists("key")


def test_a_node_that_is_killed(cluster: Cluster, latch: Latch) -> None:
    node = cluster.add_node(num_cpus=0, resources={"doomed": 1})

    @aktis.remote(num_cpus=0, resources={"doomed": 1}, max_retries=0)
    def waits(latch: Latch) -> None:
        latch.wait()

    @aktis.remote(num_cpus=0, resources={"doomed": 0.1})
    class Actor:
        def wait(self, latch: Latch) -> None:
            latch.wait()

    ref = waits.options(resources={"doomed": 0.1}).remote(latch)
    actor = Actor.remote()
    call = actor.wait.remote(latch)
    latch.wait_for_arrivals(2)
    debug.kill_node(node.node_id)
    assert node not in cluster.list_all_nodes()
    with pytest.raises(exceptions.NodeDiedError, match=r"node it was running on is dead(.|\n)*node is gone"):
        get(ref)
    with pytest.raises(exceptions.ActorDiedError, match="node is gone"):
        get(call)
    wait_until(lambda: sum(node["Alive"] for node in aktis.nodes()) == NODES)
