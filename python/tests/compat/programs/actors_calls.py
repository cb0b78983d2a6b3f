"""Calls of actors: their order, how many run at once, groups, limits, and what callers may pass."""

import asyncio
import threading
import time

import ray
from outcomes import show, start

start()


@ray.remote(num_cpus=0)
def after(seconds, value):
    time.sleep(seconds)
    return value


@ray.remote(num_cpus=0)
def fails():
    raise KeyError("input")


@ray.remote(num_cpus=0)
class Log:
    def __init__(self):
        self.seen = []
        self.running = 0
        self.most = 0

    def note(self, value):
        self.seen.append(value)
        return value

    def slow(self, value, seconds=0.1):
        self.running += 1
        self.most = max(self.most, self.running)
        time.sleep(seconds)
        self.running -= 1
        self.seen.append(value)
        return value

    def get(self):
        return self.seen

    def get_most(self):
        return self.most

    def thread(self):
        return threading.current_thread() is threading.main_thread()

    def two(self):
        return 1, 2

    def none(self):
        pass

    def raises(self):
        raise ValueError("inside")

    def with_default(self, first, second=2, *rest, third=3, **more):
        return [first, second, list(rest), third, dict(sorted(more.items()))]

    @ray.method(num_returns=2)
    def declared(self):
        return 3, 4

    @staticmethod
    def static(value):
        return value + 1

    @classmethod
    def of_class(cls, value):
        return value + 2

    def call(self, other, value):
        return ray.get(other.note.remote(value))

    def call_self(self):
        me = ray.get_runtime_context().current_actor
        return me.note.remote("self")


@ray.remote(num_cpus=0)
class Async:
    def __init__(self):
        self.seen = []
        self.running = 0
        self.most = 0
        self.event = asyncio.Event()

    async def note(self, value, seconds=0.0):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(seconds)
        self.running -= 1
        self.seen.append(value)
        return value

    async def wait(self):
        await self.event.wait()
        return "set"

    async def set(self):
        self.event.set()

    async def get(self):
        return self.seen

    async def get_most(self):
        return self.most

    def plain(self):
        return "plain"

    async def ask(self, other):
        return await other.note.remote(5)

    async def gather(self, other):
        return await asyncio.gather(*(other.note.remote(number) for number in range(3)))

    async def in_time(self, reference):
        try:
            return await asyncio.wait_for(reference[0], 0.1)
        except TimeoutError:
            return "late"


@ray.remote(num_cpus=0, concurrency_groups={"io": 2, "compute": 1})
class Grouped:
    def __init__(self):
        self.lock = threading.Lock()
        self.running = {"io": 0, "compute": 0}
        self.most = {"io": 0, "compute": 0}

    def _run(self, group):
        with self.lock:
            self.running[group] += 1
            self.most[group] = max(self.most[group], self.running[group])
        time.sleep(0.15)
        with self.lock:
            self.running[group] -= 1

    @ray.method(concurrency_group="io")
    def read(self):
        self._run("io")

    @ray.method(concurrency_group="compute")
    def compute(self):
        self._run("compute")

    def get(self):
        return self.most


def order(actor, calls=20):
    for number in range(calls):
        actor.note.remote(number)
    return ray.get(actor.get.remote()) == list(range(calls))


def order_with_late_argument():
    actor = Log.remote()
    actor.note.remote(after.remote(0.5, "late"))
    actor.note.remote("early")
    return ray.get(actor.get.remote())


def order_after_a_failed_argument():
    actor = Log.remote()
    failed = actor.note.remote(fails.remote())
    actor.note.remote("next")
    seen = ray.get(actor.get.remote())
    try:
        ray.get(failed)
    except KeyError as error:
        return [seen, isinstance(error, ray.exceptions.RayTaskError)]


def at_once(count, **options):
    actor = Log.options(**options).remote()
    ray.get([actor.slow.remote(number) for number in range(count)])
    return ray.get(actor.get_most.remote())


def async_at_once(count, **options):
    actor = Async.options(**options).remote()
    ray.get([actor.note.remote(number, 0.2) for number in range(count)])
    return ray.get(actor.get_most.remote())


def waits_for_another_call():
    actor = Async.remote()
    waiting = actor.wait.remote()
    before = len(ray.wait([waiting], timeout=0.3)[0])
    actor.set.remote()
    return [before, ray.get(waiting, timeout=20)]


def grouped():
    actor = Grouped.remote()
    ray.get([actor.read.remote() for _ in range(4)] + [actor.compute.remote() for _ in range(2)])
    return ray.get(actor.get.remote())


def wrong_group():
    Grouped.remote().read.options(concurrency_group="absent").remote()


def pending_limit():
    actor = Log.options(max_pending_calls=2).remote()
    ray.get(actor.get.remote())
    held = [actor.slow.remote(number, 1) for number in range(2)]
    try:
        actor.note.remote(1)
    finally:
        ray.get(held)


def after_the_limit():
    actor = Log.options(max_pending_calls=1).remote()
    return [ray.get(actor.note.remote(number)) for number in range(3)]


def called_by_a_task():
    @ray.remote(num_cpus=0)
    def call(actor, value):
        return ray.get(actor.note.remote(value))

    actor = Log.remote()
    ray.get([call.remote(actor, number) for number in range(5)])
    return sorted(ray.get(actor.get.remote()))


def handle_in_a_value():
    actor = Log.remote()
    (again,) = ray.get(ray.put([actor]))
    ray.get(again.note.remote("again"))
    return [ray.get(actor.get.remote()), again == actor, hash(again) == hash(actor)]


def to_itself():
    actor = Log.remote()
    reference = ray.get(actor.call_self.remote())
    return ray.get(reference, timeout=20)


def cycle():
    one, two = Log.remote(), Log.remote()
    return [ray.get(one.call.remote(two, "x")), ray.get(two.call.remote(one, "y"))]


def wait_for_calls():
    actor, other = Log.remote(), Log.remote()
    ray.get([actor.get.remote(), other.get.remote()])
    slow, fast = actor.slow.remote("slow", 1), other.note.remote("fast")
    ready, rest = ray.wait([slow, fast], timeout=20)
    return [ready == [fast], rest == [slow]]


show("order", lambda: order(Log.remote()))
show("order with a late argument", order_with_late_argument)
show("order after a failed argument", order_after_a_failed_argument)
show("one at a time", lambda: at_once(4))
show("three at a time", lambda: at_once(6, max_concurrency=3))
show("async at once", lambda: async_at_once(5))
show("async, two at a time", lambda: async_at_once(5, max_concurrency=2))
show("async, one at a time", lambda: async_at_once(3, max_concurrency=1))
show("a plain method of an async actor", lambda: ray.get(Async.remote().plain.remote()))
show("waits for another call", waits_for_another_call)
show("awaits another actor", lambda: ray.get(Async.remote().ask.remote(Log.remote())))
show("gathers", lambda: ray.get(Async.remote().gather.remote(Log.remote())))
show("awaits in time", lambda: ray.get(Async.remote().in_time.remote([after.remote(1, 1)])))
show("groups", grouped)
show("a group that is not there", wrong_group)
show("pending limit", pending_limit)
show("after the limit", after_the_limit)
show("main thread", lambda: ray.get(Log.remote().thread.remote()))
show("two values as one", lambda: ray.get(Log.remote().two.remote()))
show("two values", lambda: ray.get(Log.remote().two.options(num_returns=2).remote()))
show("declared", lambda: ray.get(list(Log.remote().declared.remote())))
show("nothing", lambda: ray.get(Log.remote().none.remote()))
show("no return", lambda: Log.remote().none.options(num_returns=0).remote())
show("raises", lambda: ray.get(Log.remote().raises.remote()), "inside")
show("keywords", lambda: ray.get(Log.remote().with_default.remote(1, third=4, other=5)))
show("many arguments", lambda: ray.get(Log.remote().with_default.remote(1, 2, 3, 4)))
show("a missing argument", lambda: Log.remote().note.remote())
show("too many arguments", lambda: Log.remote().note.remote(1, 2))
show("an unknown keyword", lambda: Log.remote().note.remote(1, other=2))
show("a missing method", lambda: Log.remote().absent)
show("a direct call", lambda: Log.remote().note(1))
show("static", lambda: ray.get(Log.remote().static.remote(1)))
show("of the class", lambda: ray.get(Log.remote().of_class.remote(1)))
show("called by tasks", called_by_a_task)
show("a handle in a value", handle_in_a_value)
show("to itself", to_itself)
show("to each other", cycle)
show("wait", wait_for_calls)
