"""Actors: lives, order, resources, endings, async, names (behaviours 14 to 20)."""

import asyncio
import contextvars
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Latch, SignalActor, is_alive, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")


@aktis.remote
class Counter:
    """Counts."""

    step = 1

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, number: int | None = None) -> int:
        self.value += self.step if number is None else number
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def echo(self, value: Any) -> Any:
        return value

    def fail(self) -> None:
        raise ValueError("on purpose")

    def wait(self, latch: Latch) -> int:
        latch.wait()
        return self.value

    @aktis.method(num_returns=2)
    def pair(self) -> tuple[int, int]:
        return self.value, -self.value

    @staticmethod
    def static(x: int) -> int:
        return x + 1

    @classmethod
    def class_name(cls) -> str:
        return cls.__name__

    @property
    def current(self) -> int:
        return self.value

    def _private(self) -> str:
        return "still callable"


@aktis.remote
def calls(actor: Any) -> int:
    return aktis.get(actor.add.remote())


# --- the basics -----------------------------------------------------------------------------------


def test_an_actor_has_state() -> None:
    counter = Counter.remote(10)
    assert aktis.get([counter.add.remote(), counter.add.remote(5), counter.add.remote(number=-1)]) == [
        11,
        16,
        15,
    ]
    assert aktis.get(counter.pair.remote()) == [15, -15]
    assert aktis.get(counter.pair.options(num_returns=1).remote()) == (15, -15)
    assert aktis.get(counter.pid.remote()) != os.getpid()
    assert aktis.get([counter.static.remote(1), counter.class_name.remote()]) == [2, "Counter"]
    assert aktis.get(counter._private.remote()) == "still callable"


def test_each_actor_has_its_own_state() -> None:
    one, other = Counter.remote(1), Counter.remote(100)
    assert aktis.get([one.add.remote(), other.add.remote(), one.add.remote()]) == [2, 101, 3]
    assert aktis.get(one.pid.remote()) != aktis.get(other.pid.remote())


def test_wrong_calls_are_refused_at_once() -> None:
    counter = Counter.remote()
    with pytest.raises(AttributeError, match="add"):
        counter.ad
    with pytest.raises(AttributeError):
        counter.current
    with pytest.raises(TypeError, match=r"add\(\)"):
        counter.add.remote(1, 2)
    with pytest.raises(TypeError, match=r"Counter\(\)"):
        Counter.remote(1, 2)
    with pytest.raises(TypeError, match="remote"):
        counter.add()
    with pytest.raises(TypeError, match="remote"):
        Counter()
    with pytest.raises(ValueError, match="num_cpus"):
        counter.add.options(num_cpus=1)
    assert aktis.get(counter.add.remote()) == 1


def test_exceptions_of_methods() -> None:
    counter = Counter.remote()
    with pytest.raises(ValueError, match="on purpose") as caught:
        aktis.get(counter.fail.remote())
    assert "Counter.fail()" in str(caught.value)
    assert aktis.get(counter.add.remote()) == 1, "it lives on"


def test_inheritance() -> None:
    class Base:
        def __init__(self, x: int) -> None:
            self.x = x

        def get(self) -> int:
            return self.x

        def name(self) -> str:
            return "base"

    @aktis.remote
    class Derived(Base):
        def __init__(self) -> None:
            super().__init__(5)

        def name(self) -> str:
            return "derived of " + super().name()

    actor = Derived.remote()
    assert aktis.get([actor.get.remote(), actor.name.remote()]) == [5, "derived of base"]


def test_handles_are_values() -> None:
    counter = Counter.remote(1)
    assert aktis.get(calls.remote(counter)) == 2
    assert aktis.get(calls.remote(counter)) == 3
    box = aktis.put({"actor": counter})
    again = aktis.get(box)["actor"]
    assert again == counter
    assert len({again, counter}) == 1
    assert again != Counter.remote()
    assert aktis.get(again.add.remote()) == 4
    assert "Counter" in repr(counter)
    assert counter.add is counter.add, "a method is made once"


def test_methods_of_every_actor() -> None:
    counter = Counter.remote(3)
    assert aktis.get(counter.__ray_ready__.remote()) is True
    assert aktis.get(counter.__aktis_ready__.remote()) is True
    assert aktis.get(counter.__ray_call__.remote(lambda self, x: self.value + x, 4)) == 7


def test_a_special_method_can_be_called() -> None:
    @aktis.remote
    class Callable:
        def __call__(self, x: int) -> int:
            return x + 1

        def __len__(self) -> int:
            return 3

    actor = Callable.remote()
    assert aktis.get([actor.__call__.remote(1), actor.__len__.remote()]) == [2, 3]


def test_an_actor_creates_actors() -> None:
    @aktis.remote
    class Parent:
        def __init__(self) -> None:
            self.child = Counter.remote(5)

        def get_child(self) -> Any:
            return self.child

        def ask(self) -> int:
            return aktis.get(self.child.add.remote())

    parent = Parent.remote()
    assert aktis.get(parent.ask.remote()) == 6
    assert aktis.get(aktis.get(parent.get_child.remote()).add.remote()) == 7


# --- 14: how long an actor lives ------------------------------------------------------------------


def gone(pid: int) -> None:
    wait_until(lambda: not is_alive(pid), what=f"process {pid} to end")


def test_calls_run_although_the_handle_is_dropped() -> None:
    assert aktis.get(Counter.remote(5).add.remote()) == 6
    counter = Counter.remote()
    refs = [counter.add.remote() for _ in range(10)]
    pid = counter.pid.remote()
    del counter
    assert aktis.get(refs) == list(range(1, 11))
    gone(aktis.get(pid))


def test_handles_elsewhere_keep_it_alive(latch: Latch) -> None:
    @aktis.remote
    def holds(box: list[Any], latch: Latch) -> int:
        latch.wait()
        return aktis.get(box[0].add.remote())

    counter = Counter.remote()
    pid = aktis.get(counter.pid.remote())
    ref = holds.remote([counter], latch)
    latch.wait_for_arrivals(1)
    del counter
    assert is_alive(pid)
    latch.open()
    assert aktis.get(ref) == 1
    del ref  # what would make the result again, arguments included, goes with it
    gone(pid)


def test_a_handle_in_an_object_keeps_it_alive() -> None:
    counter = Counter.remote()
    pid = aktis.get(counter.pid.remote())
    box = aktis.put([counter])
    del counter
    assert aktis.get(aktis.get(box)[0].add.remote()) == 1
    assert is_alive(pid)
    del box
    gone(pid)


def test_a_name_does_not_keep_it_alive() -> None:
    counter = Counter.options(name="short-lived").remote()
    pid = aktis.get(counter.pid.remote())
    found = aktis.get_actor("short-lived")
    assert found == counter
    del counter, found
    gone(pid)
    wait_until(lambda: raises(ValueError, lambda: aktis.get_actor("short-lived")), what="the name to be free")


def raises(kind: type[BaseException], call: Any) -> bool:
    try:
        call()
    except kind:
        return True
    return False


def test_kill() -> None:
    counter = Counter.remote()
    pid = aktis.get(counter.pid.remote())
    aktis.kill(counter)
    gone(pid)
    with pytest.raises(exceptions.ActorDiedError):
        aktis.get(counter.add.remote())
    with pytest.raises(ValueError):
        aktis.kill("counter")


# --- 15: order ------------------------------------------------------------------------------------


def test_calls_run_in_the_order_of_their_caller(latch: Latch) -> None:
    @aktis.remote
    class Log:
        def __init__(self) -> None:
            self.items: list[Any] = []

        def add(self, item: Any) -> None:
            self.items.append(item)

        def get(self) -> list[Any]:
            return self.items

    @aktis.remote
    def later(latch: Latch, value: Any) -> Any:
        latch.wait()
        return value

    log = Log.remote()
    slow = later.remote(latch, "first")
    log.add.remote(slow)
    log.add.remote("second")
    third = log.add.remote("third")

    @aktis.remote
    def other_caller(log: Any) -> list[Any]:
        aktis.get(log.add.remote("other"))
        return aktis.get(log.get.remote())

    # Another caller does not wait behind the first one's argument.
    assert aktis.get(other_caller.remote(log), timeout=20) == ["other"]
    latch.open()
    aktis.get(third)
    assert aktis.get(log.get.remote()) == ["other", "first", "second", "third"]


def test_many_calls_keep_their_order() -> None:
    counter = Counter.remote()
    assert aktis.get([counter.add.remote() for _ in range(1000)]) == list(range(1, 1001))


# --- 16: resources --------------------------------------------------------------------------------


@pytest.mark.one_node("a node is not told what is free on others")
def test_an_actor_holds_no_cpu_unless_it_says_so(session: Any) -> None:
    actors = [Counter.remote(n) for n in range(4)]
    assert aktis.get([actor.add.remote() for actor in actors]) == [1, 2, 3, 4]
    wait_until(lambda: aktis.available_resources().get("CPU") == 2.0, what="both CPUs to be free")
    explicit = Counter.options(num_cpus=1).remote()
    aktis.get(explicit.add.remote())
    wait_until(lambda: aktis.available_resources().get("CPU") == 1.0, what="one CPU to be held")
    del explicit
    wait_until(lambda: aktis.available_resources().get("CPU") == 2.0, what="the CPU to come back")


def test_an_actor_waits_for_its_resources(session: Any) -> None:
    first = Counter.options(num_cpus=2).remote()
    aktis.get(first.add.remote())
    second = Counter.options(num_cpus=1).remote()
    ref = second.add.remote()
    assert aktis.wait([ref], timeout=0.2) == ([], [ref])
    aktis.kill(first)
    assert aktis.get(ref, timeout=30) == 1


# --- 17: constructors that fail -------------------------------------------------------------------


def test_a_constructor_that_raises() -> None:
    @aktis.remote
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no such luck")

        def method(self) -> None:
            pass

    broken = Broken.remote()
    for _ in range(2):
        with pytest.raises(exceptions.ActorDiedError, match="no such luck") as caught:
            aktis.get(broken.method.remote())
        assert "RuntimeError" in str(caught.value)
        assert "__init__" in str(caught.value)


def test_references_for_a_constructor() -> None:
    assert aktis.get(Counter.remote(aktis.put(7)).add.remote()) == 8

    @aktis.remote
    def seven() -> int:
        return 7

    assert aktis.get(Counter.remote(seven.remote()).add.remote()) == 8


# --- 18: exit_actor -------------------------------------------------------------------------------


@aktis.remote(max_restarts=3)
class Leaver:
    def __init__(self, folder: Path | None = None) -> None:
        if folder is not None:
            import atexit

            atexit.register((folder / "ended").touch)

    def leave(self) -> None:
        aktis.exit_actor()

    def leave_and_catch(self) -> str:
        try:
            aktis.exit_actor()
        except BaseException:
            return "caught"
        return "not raised"

    def pid(self) -> int:
        return os.getpid()


@aktis.remote(max_restarts=3)
class AsyncLeaver(Leaver.__wrapped__):  # type: ignore[name-defined]
    async def leave(self) -> None:
        await asyncio.sleep(0)
        aktis.exit_actor()

    async def leave_and_catch(self) -> str:
        await asyncio.sleep(0)
        return str(super().leave_and_catch())


@pytest.mark.parametrize("cls", [Leaver, AsyncLeaver])
@pytest.mark.parametrize("method", ["leave", "leave_and_catch", "__ray_terminate__"])
def test_exit_actor_is_for_good(tmp_path: Path, cls: Any, method: str) -> None:
    actor = cls.remote(tmp_path)
    pid = aktis.get(actor.pid.remote())
    ref = getattr(actor, method).remote()
    if method == "leave":
        with pytest.raises(exceptions.ActorDiedError):
            aktis.get(ref)
    gone(pid)
    with pytest.raises(exceptions.ActorDiedError):
        aktis.get(actor.pid.remote())
    assert (tmp_path / "ended").exists(), "what was registered with atexit runs"


def test_kill_runs_no_atexit(tmp_path: Path) -> None:
    actor = Leaver.remote(tmp_path)
    pid = aktis.get(actor.pid.remote())
    aktis.kill(actor)
    gone(pid)
    assert not (tmp_path / "ended").exists()


def test_exit_actor_outside_of_actors() -> None:
    with pytest.raises(TypeError, match="outside"):
        aktis.exit_actor()

    @aktis.remote
    def task() -> None:
        aktis.exit_actor()

    with pytest.raises(TypeError, match="outside"):
        aktis.get(task.remote())


# --- 19: concurrency ------------------------------------------------------------------------------


@aktis.remote
class Async:
    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.event = asyncio.Event()

    async def wait(self) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.event.wait()
        self.running -= 1
        return self.most

    async def open(self) -> int:
        self.event.set()
        return self.running

    async def interleaves(self) -> bool:
        self.running += 1
        for _ in range(5):
            await asyncio.sleep(0)
        alone = self.running == 1
        self.running -= 1
        return alone

    def plain(self) -> str:
        return threading.current_thread().name

    async def thread(self) -> str:
        asyncio.get_running_loop()
        return threading.current_thread().name

    async def awaits(self, refs: list[Any]) -> Any:
        return await asyncio.gather(*refs)

    async def fail(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("later")


def test_async_methods_run_side_by_side() -> None:
    actor = Async.remote()
    waiting = [actor.wait.remote() for _ in range(50)]
    assert aktis.get(actor.open.remote()) == 50, "one caller's calls begin in order"
    assert aktis.get(waiting) == [50] * 50
    with pytest.raises(ValueError, match="later"):
        aktis.get(actor.fail.remote())
    assert aktis.get(actor.plain.remote()) == aktis.get(actor.thread.remote()), "one loop, one thread"


def test_a_concurrency_of_one_forbids_interleaving() -> None:
    actor = Async.options(max_concurrency=1).remote()
    assert all(aktis.get([actor.interleaves.remote() for _ in range(20)]))
    free = Async.remote()
    assert not all(aktis.get([free.interleaves.remote() for _ in range(50)]))


def test_coroutines_are_tasks_from_their_first_step() -> None:
    @aktis.remote
    class Careful:
        def __init__(self) -> None:
            self.variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

        async def looks(self, pause: bool) -> tuple[bool, bool, int]:
            first = asyncio.current_task()
            before = self.variable.get()
            self.variable.set(before + 1)
            async with asyncio.timeout(20):
                await asyncio.sleep(0.001 if pause else 0)
            return first is not None, first is asyncio.current_task(), before

        async def times_out(self) -> str:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "too late"
            return "in time"

    actor = Careful.remote()
    for pause in (False, True):
        seen = aktis.get([actor.looks.remote(pause) for _ in range(50)], timeout=20)
        assert seen == [(True, True, 0)] * 50, "each has a task and a context of its own"
    assert aktis.get(actor.times_out.remote(), timeout=20) == "too late"


def test_references_are_awaited_in_actors() -> None:
    actor = Async.remote()
    counter = Counter.remote()
    refs = [counter.add.remote(10), aktis.put("x"), calls.remote(counter)]
    first, text, second = aktis.get(actor.awaits.remote(refs))
    assert ({first, second}, text) in (({10, 11}, "x"), ({1, 11}, "x")), "two callers have no order"


def test_concurrency_groups() -> None:
    @aktis.remote(concurrency_groups={"io": 2, "control": 1})
    class Grouped:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        @aktis.method(concurrency_group="io")
        async def wait(self) -> int:
            while not self.event.is_set():
                await asyncio.sleep(0.002)
            return threading.get_ident()

        @aktis.method(concurrency_group="control")
        async def open(self) -> int:
            self.event.set()
            return threading.get_ident()

    actor = Grouped.remote()
    waiting = [actor.wait.remote() for _ in range(4)]
    control = aktis.get(actor.open.remote(), timeout=20)
    assert control not in aktis.get(waiting, timeout=20), "a group has a loop of its own"
    assert aktis.get(actor.wait.options(concurrency_group="control").remote(), timeout=20) == control


def test_calls_that_may_wait_are_limited(latch: Latch) -> None:
    actor = Counter.options(max_pending_calls=2).remote()
    refs = [actor.wait.remote(latch), actor.add.remote()]
    with pytest.raises(exceptions.PendingCallsLimitExceeded):
        actor.add.remote()
    latch.open()
    assert aktis.get(refs) == [0, 1]

    def again() -> Any:
        try:
            return actor.add.remote()
        except exceptions.PendingCallsLimitExceeded:
            return None

    assert aktis.get(wait_until(again, what="a call to be allowed")) == 2


def test_a_signal_between_tasks() -> None:
    signal = SignalActor()

    @aktis.remote
    def waits(signal: Any) -> str:
        aktis.get(signal.wait.remote())
        return "released"

    refs = [waits.remote(signal) for _ in range(2)]
    wait_until(lambda: aktis.get(signal.cur_num_waiters.remote()) == 2, what="both to wait")
    aktis.get(signal.send.remote())
    assert aktis.get(refs) == ["released", "released"]


# --- 20: names ------------------------------------------------------------------------------------


def test_names_are_unique_in_a_namespace() -> None:
    one = Counter.options(name="unique").remote(1)
    with pytest.raises(ValueError, match="unique"):
        Counter.options(name="unique").remote()
    other = Counter.options(name="unique", namespace="elsewhere").remote(100)
    assert aktis.get(aktis.get_actor("unique").add.remote()) == 2
    assert aktis.get(aktis.get_actor("unique", namespace="elsewhere").add.remote()) == 101
    with pytest.raises(ValueError, match="missing"):
        aktis.get_actor("missing")
    with pytest.raises(ValueError):
        aktis.get_actor("unique", namespace="nowhere")
    for wrong, kind in (("", ValueError), (3, TypeError), (None, TypeError)):
        with pytest.raises(kind):
            aktis.get_actor(wrong)
    aktis.kill(one)
    aktis.kill(other)


def test_a_name_is_known_in_tasks() -> None:
    named = Counter.options(name="known").remote(5)

    @aktis.remote
    def asks() -> Any:
        return aktis.get(aktis.get_actor("known").add.remote()), aktis.get_runtime_context().namespace

    assert aktis.get(asks.remote()) == (6, aktis.get_runtime_context().namespace)
    aktis.kill(named)


def test_a_name_is_free_after_the_end() -> None:
    one = Counter.options(name="again").remote()
    aktis.get(one.add.remote())
    aktis.kill(one)

    def create() -> Any:
        try:
            return Counter.options(name="again").remote(7)
        except ValueError:
            return None

    two = wait_until(create, what="the name to be free")
    assert aktis.get(two.add.remote()) == 8


def test_get_if_exists_has_no_race() -> None:
    maker = Counter.options(name="once", get_if_exists=True)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(maker.remote(0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert sorted(aktis.get([actor.add.remote() for actor in found])) == list(range(1, 9))


def test_detached_actors_outlive_their_handles() -> None:
    actor = Counter.options(name="lasting", lifetime="detached").remote(1)
    pid = aktis.get(actor.pid.remote())
    del actor
    time.sleep(0.1)  # nothing may happen: there is no event to wait for
    assert is_alive(pid)
    assert aktis.get(aktis.get_actor("lasting").add.remote()) == 2
    aktis.kill(aktis.get_actor("lasting"))
    gone(pid)


# --- the context ----------------------------------------------------------------------------------


def test_the_context_of_an_actor() -> None:
    @aktis.remote
    class Asks:
        def ids(self) -> Any:
            here = aktis.get_runtime_context()
            return here.get_actor_id(), here.get_actor_name(), here.get_task_name(), here.get_task_id()

        def itself(self) -> Any:
            return aktis.get_runtime_context().current_actor

        def again(self) -> bool:
            return aktis.get_runtime_context().was_current_actor_reconstructed

    actor = Asks.options(name="asks").remote()
    ref = actor.ids.remote()
    identity, name, task, task_id = aktis.get(ref)
    assert identity == actor._actor_id.hex()
    assert (name, task) == ("asks", "Asks.ids")
    assert task_id == ref.task_id().hex()
    assert aktis.get(actor.itself.remote()) == actor
    assert aktis.get(actor.again.remote()) is False
    assert aktis.get(Asks.remote().ids.remote())[1] == ""


def test_a_call_that_get_has_answered_is_not_pending() -> None:
    @aktis.remote(num_cpus=0, max_pending_calls=1)
    class Quick:
        def ok(self) -> int:
            return 1

    quick = Quick.remote()
    # The count must not wait for callbacks: each call begins as soon as `get` returns.
    assert sum(aktis.get(quick.ok.remote()) for _ in range(500)) == 500
