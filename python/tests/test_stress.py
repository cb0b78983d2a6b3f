"""Stress: much of everything at once, and nothing left afterwards. Short: each test takes a second or two."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis._engine import current
from aktis.util import debug
from support import children_of, open_files, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")

PATIENCE = 60


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=PATIENCE)


@aktis.remote
def square(number: int) -> int:
    return number * number


@aktis.remote
def length(items: Any) -> int:
    return len(items)


def in_threads(count: int, function: Callable[[int], None]) -> None:
    """Runs `function(0)`, `function(1)`, ... in threads of their own; raises what they raise."""
    problems: list[BaseException] = []

    def run(number: int) -> None:
        try:
            function(number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if problems:
        raise problems[0]


def objects() -> int:
    """Objects that the node knows of, without functions and classes, which stay."""
    session = current()
    assert session is not None
    return len(session.state("objects"))


@pytest.fixture
def nothing_grows() -> Iterator[None]:
    """After the test this process refers to no more objects than before, and the node knows no more."""
    get([square.remote(1), length.remote([])])
    gc.collect()
    before, known = set(debug.reference_counts()), objects()
    yield
    gc.collect()
    exports = 16  # functions and classes that the test has made
    wait_until(lambda: len(set(debug.reference_counts()) - before) <= exports, what="references to go")
    wait_until(lambda: objects() <= known + exports, what="objects to go")
    assert debug.store_stats()["all_objects"] <= exports


# --- tasks ----------------------------------------------------------------------------------------


def test_small_tasks_from_several_threads(nothing_grows: None) -> None:
    def run(thread: int) -> None:
        for start in range(0, 1500, 300):
            numbers = range(thread * 10_000 + start, thread * 10_000 + start + 300)
            assert get([square.remote(number) for number in numbers]) == [n * n for n in numbers]
            assert get(square.remote(thread)) == thread * thread

    in_threads(6, run)


def test_tasks_submit_tasks_five_levels_deep(nothing_grows: None) -> None:
    @aktis.remote
    def tree(depth: int) -> int:
        if depth == 0:
            return 1
        return sum(aktis.get([tree.remote(depth - 1) for _ in range(2)]))

    assert get([tree.remote(5), tree.remote(5)]) == [32, 32]


def test_the_node_is_not_crowded_after_nested_tasks(session: Any) -> None:
    """Workers that were started because others waited end, and no more run at once than there are CPUs."""

    @aktis.remote
    def parent(number: int) -> int:
        return aktis.get(square.remote(number))

    @aktis.remote
    def span() -> tuple[float, float]:
        begin = time.monotonic()
        time.sleep(0.02)  # what is measured
        return begin, time.monotonic()

    assert get([parent.remote(number) for number in range(20)]) == [number**2 for number in range(20)]

    def most_at_once() -> int:
        spans = get([span.remote() for _ in range(20)])
        return max(sum(begin <= start < end for begin, end in spans) for start, _ in spans)

    wait_until(lambda: most_at_once() <= 2, what="no more than two tasks at once")
    wait_until(lambda: len(children_of(os.getpid())) <= 1 + 4, what="workers to end")


def test_chains_of_references(nothing_grows: None) -> None:
    @aktis.remote
    def add(one: int, other: int) -> int:
        return one + other

    ref = aktis.put(0)
    for number in range(1000):
        ref = add.remote(ref, number)
    assert get(ref) == sum(range(1000))
    refs = [aktis.put(number) for number in range(256)]
    while len(refs) > 1:
        refs = [add.remote(one, other) for one, other in zip(refs[::2], refs[1::2], strict=True)]
    assert get(refs[0]) == sum(range(256))


def test_a_failure_passes_through_a_long_chain(run_script: Any) -> None:
    done = run_script("""
        import aktis
        aktis.init(num_cpus=2)
        @aktis.remote
        def fails(): raise ValueError("at the beginning")
        @aktis.remote
        def add(one, other): return one + other
        ref = fails.remote()
        for number in range(5000):
            ref = add.remote(ref, number)
        try:
            aktis.get(ref, timeout=40)
        except ValueError as error:
            print("at the beginning" in str(error))
    """)
    assert done.stdout.strip() == "True", done.stderr


def test_wait_loops(nothing_grows: None) -> None:
    def run(thread: int) -> None:
        pending = [square.remote(number) for number in range(600)]
        values = []
        while pending:
            ready, pending = aktis.wait(pending, num_returns=min(5, len(pending)), timeout=PATIENCE)
            assert ready
            values += get(ready)
        assert sorted(values) == [number * number for number in range(600)]

    in_threads(3, run)


# --- references -----------------------------------------------------------------------------------


def test_references_in_containers_come_and_go(nothing_grows: None) -> None:
    """10^5 references, made, boxed, sent, returned and dropped."""

    @aktis.remote
    def keeps_some(refs: list[Any]) -> list[Any]:
        return [*refs[::2], aktis.put(len(refs))]

    @aktis.remote
    class Box:
        def __init__(self) -> None:
            self.refs: list[Any] = []

        def swap(self, refs: list[Any]) -> list[Any]:
            before, self.refs = self.refs, refs
            return before

    box = Box.remote()
    made = 0
    for round_number in range(100):
        refs = [aktis.put(number) for number in range(500)]
        nested = aktis.put({"a": refs[:100], "b": [refs[100:200], (refs[200],)]})
        kept = keeps_some.remote(refs)
        swapped = box.swap.remote(refs[:250])
        made += 500 + 250 + 250
        assert get(length.remote(nested)) == 2
        if round_number % 25 == 0:
            back = get(kept)
            assert get(back[-1]) == 500
            assert get(back[:5]) == [0, 2, 4, 6, 8]
            inner = get(nested)
            assert get(inner["b"][1][0]) == 200
            assert get(get(swapped)[:3] or []) in ([], [0, 1, 2])
            del back, inner
    assert made == 100_000
    get(box.swap.remote([]))
    del refs, nested, kept, swapped, box


def test_large_objects_come_and_go(nothing_grows: None) -> None:
    def run(thread: int) -> None:
        for number in range(30):
            ref = aktis.put(bytes(200_000 + thread * 1000 + number))
            again = aktis.put([ref])
            assert get(length.remote(ref)) == 200_000 + thread * 1000 + number
            assert get(length.remote(again)) == 1

    in_threads(4, run)


# --- actors ---------------------------------------------------------------------------------------


def test_actors_in_a_ring(nothing_grows: None) -> None:
    @aktis.remote(num_cpus=0)
    class Link:
        def __init__(self) -> None:
            self.following: Any = None
            self.seen = 0

        def follow(self, following: Any) -> None:
            self.following = following

        async def go_round(self, hops: int) -> int:
            self.seen += 1
            return 1 if hops == 0 else 1 + await self.following.go_round.remote(hops - 1)

        def leave(self) -> int:
            self.following = None
            return self.seen

    ring = [Link.remote() for _ in range(50)]
    get([link.follow.remote(ring[(number + 1) % 50]) for number, link in enumerate(ring)])
    assert get(ring[0].go_round.remote(99)) == 100
    assert get([link.go_round.remote(10) for link in ring]) == [11] * 50
    seen = get([link.leave.remote() for link in ring])
    assert seen == [13] * 50
    del ring
    gc.collect()
    wait_until(lambda: len(children_of(os.getpid())) <= 1 + 4, what="50 processes to end")


def test_async_actors_with_a_thousand_calls_in_flight(nothing_grows: None) -> None:
    @aktis.remote(num_cpus=0)
    class Meeting:
        def __init__(self) -> None:
            self.present = 0
            self.all_here = asyncio.Event()

        async def meet(self, number: int) -> int:
            self.present += 1
            if self.present == 1000:
                self.all_here.set()
            await self.all_here.wait()
            await asyncio.sleep(0)
            return number

        async def echo(self, number: int) -> int:
            return number

    meeting = Meeting.remote()
    assert get([meeting.meet.remote(number) for number in range(1000)]) == list(range(1000))

    async def gathers() -> list[int]:
        return list(await asyncio.gather(*[meeting.echo.remote(number) for number in range(1000)]))

    assert asyncio.run(gathers()) == list(range(1000))


def test_one_actor_and_many_callers(nothing_grows: None) -> None:
    @aktis.remote(num_cpus=0)
    class Log:
        def __init__(self) -> None:
            self.lines: dict[Any, list[int]] = {}

        def add(self, who: Any, number: int) -> None:
            self.lines.setdefault(who, []).append(number)

        def get(self) -> dict[Any, list[int]]:
            return self.lines

    log = Log.remote()

    @aktis.remote
    def writes(who: str) -> None:
        aktis.get([log.add.remote(who, number) for number in range(300)])

    def run(thread: int) -> None:
        get([log.add.remote(thread, number) for number in range(300)])

    tasks = [writes.remote(f"task {number}") for number in range(4)]
    in_threads(4, run)
    get(tasks)
    lines = get(log.get.remote())
    # All callers of one process that share a thread keep their order; here each thread has its own line.
    assert lines.keys() == {0, 1, 2, 3, *(f"task {number}" for number in range(4))}
    assert all(sorted(found) == list(range(300)) for found in lines.values())
    assert all(lines[f"task {number}"] == list(range(300)) for number in range(4))


# --- generators -----------------------------------------------------------------------------------


def test_generators_with_slow_consumers(nothing_grows: None) -> None:
    @aktis.remote(_generator_backpressure_num_objects=3)
    def held_back(count: int) -> Iterator[Any]:
        for number in range(count):
            yield [number] * (20_000 if number % 50 == 0 else 1)

    @aktis.remote
    def free(count: int) -> Iterator[int]:
        yield from range(count)

    def run(thread: int) -> None:
        slow, fast = held_back.remote(150), free.remote(500)
        assert [get(ref)[0] for ref in slow] == list(range(150))
        assert [get(ref) for ref in fast] == list(range(500))
        # Dropped in the middle: its producer must not wait for ever.
        unfinished = held_back.remote(10_000)
        next(unfinished)

    in_threads(3, run)
    assert get([square.remote(number) for number in range(10)]) == [number**2 for number in range(10)]


# --- sessions -------------------------------------------------------------------------------------


def memory_maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_sessions_come_and_go(no_session: None) -> None:
    """Twenty sessions leave no descriptors, threads, maps, processes or memory behind."""

    @aktis.remote
    class Actor:
        def echo(self, value: Any) -> Any:
            return value

    def once() -> None:
        aktis.init(num_cpus=2)
        actor = Actor.remote()
        refs = [square.remote(2), actor.echo.remote(3), aktis.put(bytes(1_000_000))]
        assert get(refs[:2]) == [4, 3]
        assert len(get(refs[2])) == 1_000_000
        aktis.shutdown()

    def figures() -> list[int]:
        gc.collect()
        return [open_files(), native_threads(), memory_maps(), len(children_of(os.getpid()))]

    for _ in range(4):
        once()
    before, memory = figures(), resident_bytes()
    for _ in range(20):
        once()
    after = figures()
    assert after[0] == before[0], "descriptors"
    assert after[1] == before[1], "threads"
    assert after[2] <= before[2] + 20, "memory maps"
    assert after[3] == 0, "processes"
    assert resident_bytes() - memory < 20 << 20, "memory"
