"""Queue: order, limits, waiting, batches, coroutines, sharing, and its end."""

import asyncio
import queue as standard
import time
from typing import Any

import pytest

import aktis
from aktis.exceptions import ActorDiedError
from aktis.util.queue import Empty, Full, Queue
from support import wait_until


@aktis.remote(num_cpus=0)
def take(queue: Queue[Any], count: int) -> list[Any]:
    return [queue.get(timeout=20) for _ in range(count)]


@aktis.remote(num_cpus=0)
def give(queue: Queue[Any], items: list[Any]) -> None:
    for item in items:
        queue.put(item, timeout=20)


def test_first_in_first_out(shared_session: Any) -> None:
    queue: Queue[Any] = Queue()
    items = [1, "two", None, [3], {"four": 4}]
    for item in items:
        queue.put(item)
    assert queue.qsize() == queue.size() == len(queue) == 5
    assert not queue.empty()
    assert [queue.get() for _ in items] == items
    assert queue.empty()


def test_exceptions_are_those_of_the_standard_library(shared_session: Any) -> None:
    assert Empty is standard.Empty
    assert Full is standard.Full


def test_limit(shared_session: Any) -> None:
    queue: Queue[int] = Queue(maxsize=2)
    queue.put(1)
    assert not queue.full()
    queue.put_nowait(2)
    assert queue.full()
    with pytest.raises(Full):
        queue.put_nowait(3)
    with pytest.raises(Full):
        queue.put(3, block=False)
    assert [queue.get_nowait(), queue.get(block=False)] == [1, 2]
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(Empty):
        queue.get(block=False)


def test_without_a_limit_it_is_never_full(shared_session: Any) -> None:
    queue: Queue[int] = Queue()
    queue.put_nowait_batch(range(1000))
    assert queue.size() == 1000
    assert not queue.full()


def test_timeouts_are_kept(shared_session: Any) -> None:
    queue: Queue[int] = Queue(maxsize=1)
    queue.empty()  # The actor is there.
    begin = time.monotonic()
    with pytest.raises(Empty):
        queue.get(timeout=0.2)
    assert 0.2 <= time.monotonic() - begin < 2
    queue.put(1)
    begin = time.monotonic()
    with pytest.raises(Full):
        queue.put(2, timeout=0.2)
    assert 0.2 <= time.monotonic() - begin < 2
    assert queue.get(timeout=0) == 1
    with pytest.raises(ValueError, match="negative"):
        queue.get(timeout=-1)
    with pytest.raises(ValueError, match="negative"):
        queue.put(1, timeout=-0.1)


def test_get_waits_for_put_and_put_for_get(shared_session: Any) -> None:
    queue: Queue[int] = Queue(maxsize=1)
    taken = take.remote(queue, 50)
    given = give.remote(queue, list(range(50)))
    assert aktis.get(taken) == list(range(50))
    aktis.get(given)
    assert queue.empty()


def test_many_waiting_getters_do_not_keep_a_putter_out(shared_session: Any) -> None:
    queue: Queue[int] = Queue()
    waiting = [queue.actor.get.remote(None) for _ in range(1500)]
    queue.put_nowait_batch(range(1500))
    assert sorted(item for (item,) in aktis.get(waiting)) == list(range(1500))


def test_a_getter_that_gave_up_loses_no_item(shared_session: Any) -> None:
    queue: Queue[int] = Queue()
    for _ in range(20):
        with pytest.raises(Empty):
            queue.get(timeout=0.002)
    queue.put(1)
    assert queue.get() == 1


def test_batches_are_all_or_nothing(shared_session: Any) -> None:
    queue: Queue[int] = Queue(maxsize=3)
    queue.put_nowait_batch([1, 2])
    with pytest.raises(Full, match="room for 1"):
        queue.put_nowait_batch([3, 4])
    assert queue.size() == 2
    with pytest.raises(Empty, match="there are 2"):
        queue.get_nowait_batch(3)
    assert queue.get_nowait_batch(0) == []
    assert queue.get_nowait_batch(2) == [1, 2]
    with pytest.raises(TypeError):
        queue.put_nowait_batch(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        queue.get_nowait_batch("1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        queue.get_nowait_batch(-1)


def test_coroutines(shared_session: Any) -> None:
    queue: Queue[int] = Queue(maxsize=1)

    async def both() -> list[int]:
        async def produce() -> None:
            for number in range(10):
                await queue.put_async(number)

        async def consume() -> list[int]:
            return [await queue.get_async() for _ in range(10)]

        _, consumed = await asyncio.gather(produce(), consume())
        with pytest.raises(Empty):
            await queue.get_async(timeout=0.01)
        with pytest.raises(Empty):
            await queue.get_async(block=False)
        await queue.put_async(1)
        with pytest.raises(Full):
            await queue.put_async(2, timeout=0.01)
        with pytest.raises(Full):
            await queue.put_async(2, block=False)
        return consumed

    assert asyncio.run(both()) == list(range(10))


def test_several_producers_and_consumers_share_it(shared_session: Any) -> None:
    queue: Queue[int] = Queue(maxsize=5)
    producers = [give.remote(queue, list(range(start, start + 25))) for start in (0, 25)]
    consumers = [take.remote(queue, 25) for _ in range(2)]
    taken = aktis.get(consumers)
    aktis.get(producers)
    assert sorted(taken[0] + taken[1]) == list(range(50))


def test_a_reference_inside_a_container_stays_one(shared_session: Any) -> None:
    queue: Queue[Any] = Queue()
    reference = aktis.put("value")
    queue.put([reference])
    del reference
    (held,) = queue.get()
    assert aktis.get(held) == "value"


def test_options_for_the_actor(shared_session: Any) -> None:
    queue: Queue[int] = Queue(actor_options={"name": "test-queue-inbox"})
    queue.put(7)
    assert aktis.get(aktis.get_actor("test-queue-inbox").qsize.remote()) == 1


@pytest.mark.parametrize("force", [False, True])
def test_after_shutdown_all_operations_fail(shared_session: Any, force: bool) -> None:
    queue: Queue[int] = Queue()
    queue.put(1)
    queue.shutdown(force=force)
    with pytest.raises(ActorDiedError):
        queue.get(timeout=20)
    with pytest.raises(ActorDiedError):
        queue.put(1)


def waits_for_a_getter(queue: Queue[Any]) -> None:
    """Waits until a getter waits inside the actor."""
    blocked = queue.actor.__aktis_call__
    wait_until(lambda: aktis.get(blocked.remote(lambda items: items._blocked)) == 1, what="a waiting getter")


def test_shutdown_lets_a_waiting_getter_finish(shared_session: Any) -> None:
    queue: Queue[int] = Queue()
    taken = take.remote(queue, 1)
    waits_for_a_getter(queue)
    later = give.remote(queue, [5])
    queue.shutdown(grace_period_s=20)
    assert aktis.get(taken) == [5]
    aktis.wait([later], timeout=20)


def test_shutdown_does_not_wait_longer_than_allowed(shared_session: Any) -> None:
    queue: Queue[int] = Queue()
    taken = take.remote(queue, 1)
    waits_for_a_getter(queue)
    begin = time.monotonic()
    queue.shutdown(grace_period_s=0.1)
    assert time.monotonic() - begin < 5
    with pytest.raises(ActorDiedError):
        aktis.get(taken)


def test_the_actor_of_a_queue(shared_session: Any) -> None:
    queue: Queue[int] = Queue(maxsize=1)
    actor = queue.actor
    assert aktis.get([actor.empty.remote(), actor.full.remote(), actor.qsize.remote()]) == [True, False, 0]
    queue.shutdown()
    assert queue.actor is None
    with pytest.raises(aktis.exceptions.RayActorError):
        aktis.get(actor.empty.remote())
    with pytest.raises(aktis.exceptions.RayActorError):
        queue.put(1)
    queue.shutdown()
