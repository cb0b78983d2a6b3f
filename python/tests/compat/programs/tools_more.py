"""Queues, pools of actors and pools of processes: values, errors and edges."""

import time

import ray
from outcomes import show, start
from ray.util import ActorPool
from ray.util.multiprocessing import Pool, TimeoutError
from ray.util.queue import Empty, Full, Queue

start()


def raises(function, kind):
    try:
        function()
    except kind:
        return True
    return False


def drained(queue):
    return [queue.get_nowait() for _ in range(queue.qsize())]


# --- queues ---------------------------------------------------------------------------------------

queue = Queue(maxsize=3)
show("new", lambda: [queue.qsize(), queue.empty(), queue.full(), len(queue), queue.maxsize])
show("put and get", lambda: [queue.put(1), queue.put_nowait(2), queue.get(), queue.get_nowait()])
show("get of nothing", queue.get_nowait)
show("get with a timeout", lambda: queue.get(timeout=0.05))
show("get without waiting", lambda: queue.get(block=False))
show("a negative timeout of get", lambda: queue.get(timeout=-1))
show("put of many", lambda: [queue.put_nowait_batch([1, 2, 3]), queue.full()])
show("put into a full one", lambda: queue.put_nowait(4))
show("put with a timeout", lambda: queue.put(4, timeout=0.05))
show("put without waiting", lambda: queue.put(4, block=False))
show("a negative timeout of put", lambda: queue.put(4, timeout=-1))
show("too many at once", lambda: queue.put_nowait_batch([4]))
show("get of many", lambda: queue.get_nowait_batch(2))
show("more than there are", lambda: queue.get_nowait_batch(2))
show("what is left", lambda: drained(queue))
show("a batch that is no list", lambda: queue.put_nowait_batch(4))
show("a number that is none", lambda: queue.get_nowait_batch("x"))
show("classes", lambda: [raises(queue.get_nowait, Empty), issubclass(Full, Exception), Empty.__name__])


@ray.remote(num_cpus=0)
def produce(queue, count):
    for number in range(count):
        queue.put(number)
    return count


@ray.remote(num_cpus=0)
def consume(queue, count):
    return [queue.get() for _ in range(count)]


show("between tasks", lambda: ray.get([consume.remote(queue, 10), produce.remote(queue, 10)]))
show(
    "without a bound",
    lambda: [(many := Queue()).put_nowait_batch(list(range(100))), many.qsize(), many.full()],
)
show("options of its actor", lambda: Queue(actor_options={"num_cpus": 0, "name": "of the queue"}).empty())
show("its actor by name", lambda: type(ray.get_actor("of the queue")).__name__)


def after_shutdown(force):
    ended = Queue()
    ended.put(1)
    ended.shutdown(force=force)
    return ended.put(2)


show("after its shutdown", lambda: after_shutdown(False))
show("after its forced shutdown", lambda: after_shutdown(True))


# --- pools of actors ------------------------------------------------------------------------------


@ray.remote(num_cpus=0)
class Worker:
    def double(self, value):
        if value is None:
            raise ValueError("nothing")
        return 2 * value

    def slow(self, seconds):
        time.sleep(seconds)
        return seconds


def call(actor, value):
    return actor.double.remote(value)


def pool(count=2):
    return ActorPool([Worker.remote() for _ in range(count)])


def submitted(count):
    found = pool()
    for value in range(count):
        found.submit(call, value)
    return found


def taken(found, take):
    values = []
    while found.has_next():
        values.append(take())
    return values


def mixed():
    found = submitted(4)
    return [found.get_next(), found.has_next(), sorted(taken(found, found.get_next_unordered))]


def after_a_failure():
    found = pool(1)
    found.submit(call, None)
    found.submit(call, 4)
    return [raises(found.get_next, ValueError), found.get_next(), found.has_next()]


def times_out():
    found = pool(1)
    found.submit(lambda actor, value: actor.slow.remote(value), 1)
    return [raises(lambda: found.get_next(timeout=0.05), TimeoutError), found.get_next()]


def pushed():
    found = pool(1)
    other = Worker.remote()
    found.push(other)
    return [
        found.has_free(),
        found.pop_idle() == other,
        raises(lambda: found.push(found._idle_actors[0]), ValueError),
    ]


def popped():
    found = pool(1)
    return [found.pop_idle() is not None, found.pop_idle(), found.has_free()]


show("map", lambda: list(pool().map(call, range(5))))
show("map in any order", lambda: sorted(pool().map_unordered(call, range(5))))
show("map of nothing", lambda: list(pool().map(call, [])))
show("in order", lambda: (found := submitted(5)) and taken(found, found.get_next))
show("in any order", lambda: (found := submitted(5)) and sorted(taken(found, found.get_next_unordered)))
show("one in order, then the rest", mixed)
show("next of none", lambda: pool().get_next())
show("next of none in any order", lambda: pool().get_next_unordered())
show("a call that fails", after_a_failure)
show("a map that fails", lambda: list(pool().map(call, [1, None])), "nothing")
show("next with a timeout", times_out)
show("push", pushed)
show("pop_idle", popped)
show("free ones", lambda: [(found := submitted(1)).has_free(), found.get_next(), found.has_free()])
show("a pool of none", lambda: list(ActorPool([]).map(call, [])))


# --- pools of processes ---------------------------------------------------------------------------


def square(value):
    return value * value


def add(one, other):
    return one + other


def fail(value):
    raise ValueError(f"of {value}")


processes = Pool(2)
show("pool: map", lambda: processes.map(square, range(5)))
show("pool: map of nothing", lambda: processes.map(square, []))
show("pool: map in chunks", lambda: processes.map(square, range(5), chunksize=2))
show("pool: starmap", lambda: processes.starmap(add, [(1, 2), (3, 4)]))
show("pool: apply", lambda: processes.apply(add, (1,), {"other": 2}))
show("pool: imap", lambda: list(processes.imap(square, range(4), chunksize=2)))
show("pool: imap in any order", lambda: sorted(processes.imap_unordered(square, range(4))))
show(
    "pool: a result",
    lambda: [(found := processes.apply_async(add, (1, 2))).get(), found.ready(), found.successful()],
)
show("pool: results", lambda: processes.map_async(square, range(3)).get(timeout=20))
show("pool: results of pairs", lambda: processes.starmap_async(add, [(1, 2)]).get())
show("pool: a failure", lambda: processes.map(fail, [1]), "of 1")
show("pool: a failed result", lambda: processes.apply_async(fail, (2,)).get(), "of 2")
show("pool: a failed imap", lambda: list(processes.imap(fail, [3])), "of 3")
show("pool: too slow", lambda: processes.apply_async(time.sleep, (1,)).get(timeout=0.05))


def called_back():
    values, errors = [], []
    processes.apply_async(square, (3,), callback=values.append).get()
    found = processes.apply_async(
        fail, (3,), error_callback=lambda error: errors.append(type(error).__name__)
    )
    found.wait()
    for _ in range(200):
        if values and errors:
            break
        time.sleep(0.02)
    return [values, [name.removeprefix("RayTaskError(").removesuffix(")") for name in errors]]


def not_ready():
    found = processes.apply_async(time.sleep, (0.5,))
    return [found.ready(), raises(found.successful, ValueError)]


show("pool: callbacks", called_back)
show("pool: not ready", not_ready)
show("pool: in a with block", lambda: Pool(1).__enter__().map(square, [3]))
show("pool: join before close", processes.join)
show("pool: close and join", lambda: [processes.close(), processes.join()])
show("pool: after close", lambda: processes.map(square, [1]))
show("pool: of no processes", lambda: Pool(-1))
show("pool: first", lambda: Pool(1, initializer=time.sleep, initargs=(0,)).map(square, [2]))
