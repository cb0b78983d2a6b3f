"""`wait` and `get`: what they take, what they give, and when (behaviours 12 and 13)."""

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Latch, identity

pytestmark = pytest.mark.usefixtures("shared_session")


@aktis.remote
def fails() -> None:
    raise ValueError("as it should")


@aktis.remote
def waits(latch: Latch, value: Any = None) -> Any:
    latch.wait()
    return value


# --- 12: wait -------------------------------------------------------------------------------------


def test_wait_gives_at_most_what_was_asked_for_in_order(latch: Latch) -> None:
    slow = waits.remote(latch)
    ready = [aktis.put(number) for number in range(5)]
    refs = [ready[0], slow, *ready[1:]]
    assert aktis.wait(refs, num_returns=2) == (ready[:2], [slow, *ready[2:]])
    assert aktis.wait(refs, num_returns=5) == (ready, [slow])
    assert aktis.wait(refs, num_returns=6, timeout=0) == (ready, [slow])
    latch.open()
    assert aktis.wait(refs, num_returns=6) == (refs, [])


def test_wait_for_nothing() -> None:
    assert aktis.wait([]) == ([], [])
    assert aktis.wait([], timeout=0) == ([], [])


def test_wait_refuses_what_it_cannot_wait_for() -> None:
    ref = aktis.put(1)
    with pytest.raises(ValueError, match="twice"):
        aktis.wait([ref, ref])
    with pytest.raises(ValueError, match="twice"):
        aktis.wait([aktis.put(2), ref, aktis.put(3), ref], num_returns=4)
    for wrong in (ref, (ref,), {ref}, None, 3, "refs", iter([ref])):
        with pytest.raises(TypeError):
            aktis.wait(wrong)
    for items in ([1], [ref, None], [[ref]]):
        with pytest.raises(TypeError):
            aktis.wait(items)
    for number in (0, -1, 2):
        with pytest.raises(ValueError):
            aktis.wait([ref], num_returns=number)
    with pytest.raises(TypeError):
        aktis.wait([ref], num_returns="1")
    with pytest.raises(ValueError):
        aktis.wait([ref], timeout=-1)
    with pytest.raises(TypeError):
        aktis.wait([ref], timeout="1")


@pytest.mark.parametrize("timeout", [0, 0.05, 0.3])
def test_wait_keeps_its_time(latch: Latch, timeout: float) -> None:
    slow = waits.remote(latch)
    start = time.monotonic()
    assert aktis.wait([slow], timeout=timeout) == ([], [slow])
    took = time.monotonic() - start
    assert timeout <= took < timeout + 0.1 + 0.4  # a busy machine is late


def test_a_failure_is_ready_too() -> None:
    failed = fails.remote()
    assert aktis.wait([failed], timeout=20) == ([failed], [])


def test_wait_sees_what_becomes_ready(latch: Latch) -> None:
    slow = waits.remote(latch, "done")
    threading.Timer(0.05, latch.open).start()
    assert aktis.wait([slow], fetch_local=False) == ([slow], [])
    assert aktis.get(slow) == "done"


def test_wait_over_many_one_by_one() -> None:
    rest = [identity.remote(number) for number in range(300)]
    seen = []
    while rest:
        ready, rest = aktis.wait(rest)
        seen += aktis.get(ready)
    assert sorted(seen) == list(range(300))


def test_generators_among_references(latch: Latch, tmp_path: Any) -> None:
    second = Latch(tmp_path / "second")

    @aktis.remote
    def counts(latch: Latch, second: Latch) -> Any:
        yield 1
        latch.wait()
        yield 2
        second.wait()

    generator = counts.remote(latch, second)
    ref = aktis.put(0)
    assert aktis.wait([generator, ref], num_returns=2, timeout=20) == ([generator, ref], [])
    assert aktis.get(next(generator)) == 1
    assert aktis.wait([generator, ref], num_returns=2, timeout=0.05) == ([ref], [generator])
    latch.open()
    assert aktis.wait([generator], timeout=20) == ([generator], [])
    assert aktis.get(next(generator)) == 2
    assert aktis.wait([generator], timeout=0.05) == ([], [generator])
    second.open()
    assert aktis.wait([generator], timeout=20) == ([generator], []), "the end is worth knowing"
    assert list(generator) == []
    with pytest.raises(ValueError, match="twice"):
        aktis.wait([generator, generator])


# --- 13: get --------------------------------------------------------------------------------------


def test_get_raises_as_soon_as_one_has_failed(latch: Latch) -> None:
    slow = waits.remote(latch)
    latch.wait_for_arrivals(1)
    start = time.monotonic()
    with pytest.raises(ValueError, match="as it should"):
        aktis.get([slow, fails.remote(), slow])
    assert time.monotonic() - start < 10
    assert not latch.is_open()


def test_get_gives_up_in_time(latch: Latch) -> None:
    slow = waits.remote(latch, 5)
    for refs in (slow, [slow], [aktis.put(1), slow]):
        start = time.monotonic()
        with pytest.raises(exceptions.GetTimeoutError):
            aktis.get(refs, timeout=0.05)
        with pytest.raises(TimeoutError):
            aktis.get(refs, timeout=0)
        assert time.monotonic() - start < 1
    latch.open()
    assert aktis.get(slow, timeout=20) == 5
    assert aktis.get(slow, timeout=0) == 5


def test_get_refuses_what_is_no_reference() -> None:
    ref = aktis.put(1)
    for wrong in (3, None, "ref", (ref,), {ref}):
        with pytest.raises((TypeError, ValueError)):
            aktis.get(wrong)
    with pytest.raises(TypeError):
        aktis.get([ref, 3])
    with pytest.raises(ValueError):
        aktis.get(ref, timeout=-1)
    with pytest.raises(TypeError):
        aktis.get(ref, timeout="soon")
    assert aktis.get([]) == []
    assert aktis.get([ref, ref]) == [1, 1]


def test_a_reference_of_an_earlier_session_raises(session: Any) -> None:
    kept = aktis.put(1)
    large = aktis.put(bytes(1_000_000))
    made = identity.remote(2)
    aktis.wait([made])

    @aktis.remote
    class Actor:
        def method(self) -> int:
            return 1

    actor = Actor.remote()
    aktis.get(actor.method.remote())
    aktis.shutdown()
    aktis.init(num_cpus=2)
    for ref in (kept, large, made):
        with pytest.raises(Exception, match="session"):
            aktis.get(ref, timeout=10)
        with pytest.raises(Exception, match="session"):
            aktis.get(identity.remote(ref), timeout=10)
    with pytest.raises(Exception, match="session"):
        aktis.get(actor.method.remote(), timeout=10)
    assert aktis.get(identity.remote(3)) == 3


@pytest.mark.parametrize("call", ["get", "get_list", "wait", "next"])
def test_interrupts_reach_whoever_waits(latch: Latch, call: str) -> None:
    @aktis.remote
    def generates(latch: Latch) -> Any:
        latch.wait()
        yield 1

    slow = waits.remote(latch) if call != "next" else generates.remote(latch)
    latch.wait_for_arrivals(1)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        if call == "get":
            aktis.get(slow)
        elif call == "get_list":
            aktis.get([slow])
        elif call == "wait":
            aktis.wait([slow])
        else:
            next(slow)
    assert time.monotonic() - start < 5
    timer.join()
    latch.open()
    if call != "next":
        assert aktis.get(slow) is None, "the task went on"


def test_threads_wait_side_by_side(latch: Latch) -> None:
    slow = waits.remote(latch, 7)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(aktis.get(slow))) for _ in range(4)]
    for thread in threads:
        thread.start()
    latch.wait_for_arrivals(1)
    latch.open()
    for thread in threads:
        thread.join(20)
    assert found == [7] * 4


# --- futures --------------------------------------------------------------------------------------


def test_references_can_be_awaited(latch: Latch) -> None:
    async def main() -> None:
        assert await identity.remote(1) == 1
        assert await asyncio.gather(identity.remote(1), identity.remote(2), aktis.put(3)) == [1, 2, 3]
        with pytest.raises(ValueError):
            await fails.remote()
        slow = waits.remote(latch, 4)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow, 0.05)
        latch.open()
        assert await slow == 4
        assert await slow == 4
        done, _ = await asyncio.wait([identity.remote(n).as_future() for n in range(3)])
        assert sorted(task.result() for task in done) == [0, 1, 2]

    asyncio.run(main())


def test_futures_of_threads(latch: Latch) -> None:
    slow = waits.remote(latch, 4)
    future = slow.future()
    assert not future.done()
    latch.open()
    assert future.result(20) == 4
    with pytest.raises(ValueError):
        fails.remote().future().result(20)
    assert isinstance(fails.remote().future().exception(20), exceptions.TaskError)


def test_references_are_values() -> None:
    ref = aktis.put(1)
    assert len({ref, ref}) == 1
    assert ref == ref
    assert ref != aktis.put(1)
    assert ref.hex() in repr(ref)
    assert len(ref.binary()) == 16
    assert not ref.is_nil()
    assert aktis.get([ref, ref]) == [1, 1]
