"""Scenarios of bugs that references, actors and sessions once had. Each test says what a user saw go wrong.

Those of generators are in test_regressions_generators.py, lost wake-ups in test_regressions_wakeups.py.
"""

import gc
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from aktis.util import debug
from aktis.util.placement_group import placement_group, remove_placement_group
from support import PATIENCE, Latch, get, identity, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")

MEBIBYTE = 1 << 20


@aktis.remote
def waits(latch: Latch, value: Any = None) -> Any:
    latch.wait()
    return value


# --- references -----------------------------------------------------------------------------------


def test_processes_in_turn_make_objects_of_their_own() -> None:
    """What coroutines put had the ids of what an earlier process in the same place had put: a reference
    gave the value of another object."""

    @aktis.remote
    class Putter:
        async def put(self, number: int) -> tuple[int, list[Any]]:
            return os.getpid(), [aktis.put(("value", number))]

    refs = []
    for number in range(5):
        putter = Putter.remote()
        pid, (ref,) = get(putter.put.remote(number))
        refs.append(ref)
        aktis.kill(putter)
        wait_until(lambda pid=pid: pid not in aktis._engine.current().worker_pids(), what="its end")
    assert len(set(refs)) == 5
    assert get(refs) == [("value", number) for number in range(5)]


def test_references_of_another_session_are_refused(no_session: None, latch: Latch) -> None:
    """A reference of one session named some other object in the next one, or broke it for good; `get` and
    `wait` of references of two sessions never came back."""
    with aktis.Session(num_cpus=1) as one:
        other = aktis.Session(num_cpus=1)
        try:
            stored = one.put(b"a" * 100_000)
            mine = other.put(b"b" * 100_000)
            pending, mine_pending = one.submit(waits, latch, 1), other.submit(waits, latch, 2)
            for foreign in (stored, pending):
                for value in (foreign, [foreign]):
                    with pytest.raises(ValueError, match="another session"):
                        other.submit(identity, value)
                with pytest.raises(ValueError, match="another session"):
                    other.put([foreign])
            with pytest.raises(ValueError, match="several sessions"):
                aktis.get([pending, mine_pending], timeout=PATIENCE)
            with pytest.raises(ValueError, match="several sessions"):
                aktis.wait([pending, mine_pending], num_returns=2, timeout=PATIENCE)
            latch.open()
            assert one.get(pending, timeout=PATIENCE) == 1
            assert other.get(mine_pending, timeout=PATIENCE) == 2
            assert other.get(other.submit(identity, mine), timeout=PATIENCE) == b"b" * 100_000
            assert one.get(one.submit(identity, stored), timeout=PATIENCE) == b"a" * 100_000
        finally:
            latch.open()
            other.shutdown()


def test_references_of_an_ended_session(no_session: None) -> None:
    """References that a program kept over `shutdown` and `init` gave old values, or those of others."""
    aktis.init(num_cpus=1)
    kept = [aktis.put(1), aktis.put(bytes(MEBIBYTE)), identity.remote(2)]
    aktis.wait(kept, num_returns=3, timeout=PATIENCE)
    aktis.shutdown()
    aktis.init(num_cpus=1)
    others = [aktis.put(3), aktis.put(b"x" * MEBIBYTE), identity.remote(4)]
    for ref in kept:
        with pytest.raises(exceptions.SessionClosedError):
            get(ref)
        with pytest.raises(exceptions.SessionClosedError):
            get(identity.remote(ref))
    assert get(others) == [3, b"x" * MEBIBYTE, 4]


@pytest.mark.one_node("its placement groups count on the driver's node")
def test_a_group_that_gets_ready_as_an_argument(session: Any) -> None:
    """A task that was given `ready()` of a group that was not yet ready never started."""
    first = placement_group([{"CPU": 2}])
    get(first.ready())
    second = placement_group([{"CPU": 1}])
    then = identity.remote(second.ready())
    assert aktis.wait([second.ready()], timeout=0) == ([], [second.ready()])
    remove_placement_group(first)
    get(then)
    remove_placement_group(second)


def test_very_long_timeouts(tmp_path: Path) -> None:
    """`timeout=sys.maxsize`, which means "no limit", made the engine panic when it had to wait."""

    @aktis.remote
    def gives(latch: Latch) -> Any:
        latch.wait()
        yield 1

    def is_asleep() -> bool:
        stat = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "S"

    def open_once_it_waits(latch: Latch) -> None:
        wait_until(is_asleep, what="the main thread to wait")
        latch.open()

    def wait_with(call: Any, take: Any) -> Any:
        latch = Latch(tmp_path / uuid.uuid4().hex)
        made = call(latch)
        latch.wait_for_arrivals(1)
        opener = threading.Thread(target=open_once_it_waits, args=(latch,))
        opener.start()
        try:
            return take(made)
        finally:
            latch.open()
            opener.join(PATIENCE)

    for timeout in (sys.maxsize, float("inf")):
        value = wait_with(
            lambda latch: waits.remote(latch, 1), lambda ref, t=timeout: aktis.get(ref, timeout=t)
        )
        assert value == 1
        ready, rest = wait_with(waits.remote, lambda ref, t=timeout: aktis.wait([ref], timeout=t))
        assert (len(ready), rest) == (1, [])
    item = wait_with(gives.remote, lambda generator: generator._next_sync(sys.maxsize))
    assert get(item) == 1
    # The engine itself, without what the functions above do to the number.
    native_get = aktis._engine.native.get
    assert wait_with(lambda latch: waits.remote(latch, 2), lambda ref: native_get(ref, sys.maxsize)) == 2


def test_other_threads_run_while_an_object_comes_from_disk(no_session: None, tmp_path: Path) -> None:
    """`get` of an object that had been spilled held the interpreter's lock until it was read: no other thread
    ran meanwhile, not even one that had to make room."""
    aktis.init(num_cpus=1, object_store_memory=64 * MEBIBYTE, object_spilling_directory=str(tmp_path))
    refs = [aktis.put(bytes([number]) * (16 * MEBIBYTE)) for number in range(10)]
    assert debug.store_stats()["spilled_bytes"] > 0
    go, ran, over = threading.Event(), threading.Event(), False

    def run() -> None:
        while go.wait(PATIENCE) and not over:
            go.clear()
            ran.set()

    thread = threading.Thread(target=run)
    thread.start()
    interval = sys.getswitchinterval()
    # From here on a thread runs only if the one that runs lets it.
    sys.setswitchinterval(1000)
    ran_meanwhile = 0
    try:
        for number, ref in enumerate(refs):
            ran.clear()
            go.set()
            value = aktis.get(ref, timeout=PATIENCE)
            ran_meanwhile += ran.is_set()
            assert value[-1] == number
            del value
            assert ran.wait(PATIENCE)
    finally:
        sys.setswitchinterval(interval)
        over = True
        go.set()
        thread.join(PATIENCE)
    assert ran_meanwhile >= 1


# --- tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [True, False])
def test_a_worker_with_max_calls_waits_for_its_children(begun: bool, latch: Latch, session: Any) -> None:
    """A worker that had made all its calls ended though tasks that it had submitted were not done: "the
    process that was to make it died"."""

    @aktis.remote(max_calls=1)
    def parent(latch: Latch) -> tuple[int, list[Any]]:
        return os.getpid(), [waits.remote(latch, "child")]

    others = [] if begun else [waits.options(num_cpus=1).remote(latch)]
    latch.wait_for_arrivals(len(others))
    pid, (child,) = get(parent.remote(latch))
    if begun:
        latch.wait_for_arrivals(1)
    latch.open()
    assert get(child) == "child"
    get(others)
    wait_until(lambda: pid not in aktis._engine.current().worker_pids(), what="the worker's end")


def test_code_lives_as_long_as_its_session() -> None:
    """A class was forgotten when its object had gone and some dozens of other functions had been used; an
    actor of it could not start again: "its code cannot be fetched"."""

    def make() -> Any:
        @aktis.remote(max_restarts=1, max_task_retries=1)
        class Restarts:
            def pid(self) -> int:
                return os.getpid()

        return Restarts.remote()

    def use(number: int) -> None:
        @aktis.remote
        def gives() -> int:
            return number

        assert get(gives.remote()) == number

    actor = make()
    pid = get(actor.pid.remote())
    for number in range(40):
        use(number)
    gc.collect()
    os.kill(pid, signal.SIGKILL)
    assert get(actor.pid.remote()) != pid


def test_references_are_no_work_for_the_garbage_collector(session: Any) -> None:
    """Each collection went through all references that there were, and found nothing."""

    @aktis.remote
    def several() -> list[Any]:
        return [aktis.put(number) for number in range(3)]

    ref = several.remote()
    assert not any(gc.is_tracked(each) for each in (ref, aktis.put(1), *get(ref)))


def test_the_memory_of_ended_sessions_is_given_back(run_script: Any) -> None:
    """Each function that had been used kept the shared memory of its session after `shutdown`: programs
    that started several sessions grew by a whole store each time."""
    done = run_script("""
        import os
        import aktis
        def shared_kilobytes():
            lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
            return int(lines["RssShmem"].split()[0])
        def memory_files():
            links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            return sum("memfd" in os.readlink(link) for link in links if os.path.islink(link))
        @aktis.remote
        def size(value): return len(value)
        before = shared_kilobytes(), memory_files()
        for _ in range(3):
            aktis.init(num_cpus=1, object_store_memory=80 << 20)
            ref = aktis.put(b"x" * (32 << 20))
            assert aktis.get(size.remote(ref), timeout=20) == 32 << 20
            assert shared_kilobytes() > 32 << 10 and memory_files() > 0
            del ref
            aktis.shutdown()
            print((shared_kilobytes(), memory_files()) == before)
    """)
    assert done.stdout.split() == ["True"] * 3


# --- actors ---------------------------------------------------------------------------------------


def test_a_detached_actor_keeps_what_it_is_made_of() -> None:
    """A detached actor with a large argument, whose handle nobody kept, died before it was constructed: its
    argument was gone. So did one that had to start again."""

    @aktis.remote
    class Holder:
        def __init__(self, value: bytes) -> None:
            self.size = len(value)

        def about(self) -> tuple[int, int]:
            return os.getpid(), self.size

    options = {"name": "holder", "lifetime": "detached", "max_restarts": 1, "max_task_retries": 1}
    Holder.options(**options).remote(bytes(MEBIBYTE))
    gc.collect()
    holder = aktis.get_actor("holder")
    try:
        pid, size = get(holder.about.remote())
        assert size == MEBIBYTE
        os.kill(pid, signal.SIGKILL)
        again, size = get(holder.about.remote())
        assert again != pid
        assert size == MEBIBYTE
    finally:
        aktis.kill(holder)


def test_a_name_is_taken_once() -> None:
    """Two actors could be created under one name."""

    @aktis.remote
    class Named:
        def pid(self) -> int:
            return os.getpid()

    named = Named.options(name="taken").remote()
    with pytest.raises(ValueError, match="taken"):
        Named.options(name="taken").remote()
    assert get(aktis.get_actor("taken").pid.remote()) == get(named.pid.remote())


def test_a_coroutine_may_wait_for_threads_that_are_in_get(latch: Latch) -> None:
    """While a coroutine waited for threads that were in `get`, nobody in its process took in the answers."""

    @aktis.remote(num_cpus=0)
    class Gatherer:
        async def gather(self, latch: Latch) -> list[int]:
            from concurrent.futures import ThreadPoolExecutor

            refs = [waits.remote(latch, number) for number in range(2)]
            with ThreadPoolExecutor() as threads:
                return list(threads.map(lambda ref: aktis.get(ref, timeout=PATIENCE / 2), refs))

    gathered = Gatherer.remote().gather.remote(latch)
    latch.wait_for_arrivals(2)
    latch.open()
    assert get(gathered) == [0, 1]


def test_coroutines_are_tried_again(tmp_path: Path) -> None:
    """`retry_exceptions` did nothing for methods that are coroutines: one attempt."""
    log = tmp_path / "attempts"

    @aktis.remote(max_task_retries=3)
    class Fails:
        @aktis.method(retry_exceptions=True)
        async def fail(self, log: Path, until: int) -> int:
            with log.open("a") as file:
                file.write(".")
            if log.stat().st_size < until:
                raise ValueError("not yet")
            return log.stat().st_size

    actor = Fails.remote()
    with pytest.raises(ValueError, match="not yet"):
        get(actor.fail.remote(log, 100))
    assert log.stat().st_size == 4
    log.unlink()
    assert get(actor.fail.remote(log, 3)) == 3


@pytest.mark.parametrize(
    "options",
    [{"max_concurrency": 3}, {"concurrency_groups": {"work": 2, "control": 1}}],
    ids=["all", "groups"],
)
def test_calls_in_threads_run_side_by_side(options: dict[str, Any]) -> None:
    """Actors with `max_concurrency` or concurrency groups ran one plain method at a time."""

    def group(name: str) -> Any:
        return (
            aktis.method(concurrency_group=name) if "concurrency_groups" in options else lambda method: method
        )

    @aktis.remote(**options)
    class Service:
        def __init__(self) -> None:
            self.serving = threading.Barrier(3)

        @group("work")
        def serve(self) -> int:
            return self.serving.wait(PATIENCE / 2)

        @group("control")
        def look(self) -> int:
            return self.serving.wait(PATIENCE / 2)

    service = Service.remote()
    places = [service.serve.remote(), service.serve.remote(), service.look.remote()]
    assert sorted(get(places)) == [0, 1, 2]


def test_values_of_nested_tasks_outlive_the_idleness_of_their_submitter(no_session: None) -> None:
    """A worker that had nothing to run was ended after 2 s, with the tasks that it had submitted."""
    aktis.init(num_cpus=1, resources={"place": 1})

    @aktis.remote(num_cpus=1, max_retries=0)
    def works(number: int) -> int:
        time.sleep(0.5)
        return number

    @aktis.remote(num_cpus=0, resources={"place": 1}, max_retries=0)
    def nests() -> Any:
        return [works.remote(number) for number in range(7)]

    assert get(get(nests.remote())) == list(range(7))
