"""ActorPool: order, the first that is there, timeouts, failures, and what is idle."""

from typing import Any

import pytest

import aktis
from aktis.util import ActorPool
from support import Latch


@aktis.remote
class Worker:
    def double(self, value: int) -> int:
        return 2 * value

    def double_after(self, value: int, latch: Latch | None) -> int:
        if latch is not None:
            latch.wait()
        return 2 * value

    def fail(self, value: int) -> int:
        if value == 2:
            raise ValueError(f"not {value}")
        return value

    def both(self, value: int) -> tuple[int, int]:
        return value, -value


def workers(count: int) -> list[Any]:
    return [Worker.options(num_cpus=0).remote() for _ in range(count)]


def double(actor: Any, value: int) -> Any:
    return actor.double.remote(value)


def test_map_keeps_the_order_of_the_values(shared_session: Any, latch: Latch) -> None:
    pool = ActorPool(workers(2))

    def submit(actor: Any, value: int) -> Any:
        return actor.double_after.remote(value, latch if value == 0 else None)

    results = pool.map(submit, [0, 1, 2, 3])
    latch.wait_for_arrivals(1)
    latch.open()
    assert list(results) == [0, 2, 4, 6]
    assert not pool.has_next()


def test_map_unordered_gives_the_first_that_is_there(shared_session: Any, latch: Latch) -> None:
    pool = ActorPool(workers(2))

    def submit(actor: Any, value: int) -> Any:
        return actor.double_after.remote(value, latch if value == 0 else None)

    results = pool.map_unordered(submit, [0, 1, 2, 3])
    others = [next(results) for _ in range(3)]
    latch.open()
    assert sorted(others) == [2, 4, 6]
    assert list(results) == [0]


def test_more_values_than_actors(shared_session: Any) -> None:
    pool = ActorPool(workers(2))
    assert list(pool.map(double, range(100))) == [2 * value for value in range(100)]
    assert sorted(pool.map_unordered(double, range(100))) == [2 * value for value in range(100)]


def test_submit_and_get_next(shared_session: Any) -> None:
    pool = ActorPool(workers(1))
    pool.submit(double, 1)
    pool.submit(double, 2)
    assert pool.has_next()
    assert not pool.has_free()
    assert pool.get_next() == 2
    assert pool.get_next() == 4
    assert not pool.has_next()
    assert pool.has_free()


def test_nothing_to_get(shared_session: Any) -> None:
    pool = ActorPool(workers(1))
    with pytest.raises(StopIteration):
        pool.get_next()
    with pytest.raises(StopIteration):
        pool.get_next_unordered()


def test_timeout_leaves_the_result_for_later(shared_session: Any, latch: Latch) -> None:
    pool = ActorPool(workers(1))
    pool.submit(lambda actor, value: actor.double_after.remote(value, latch), 5)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.05)
    with pytest.raises(TimeoutError):
        pool.get_next_unordered(timeout=0.05)
    latch.open()
    assert pool.get_next(timeout=20) == 10


@pytest.mark.parametrize("unordered", [False, True])
def test_timeout_can_skip_the_result(shared_session: Any, latch: Latch, unordered: bool) -> None:
    pool = ActorPool(workers(1))
    pool.submit(lambda actor, value: actor.double_after.remote(value, latch), 5)
    take = pool.get_next_unordered if unordered else pool.get_next
    with pytest.raises(TimeoutError):
        take(timeout=0.05, ignore_if_timedout=True)
    assert not pool.has_next()
    latch.open()
    pool.submit(double, 7)
    assert take(timeout=20) == 14


def test_a_failure_is_raised_and_the_pool_goes_on(shared_session: Any) -> None:
    pool = ActorPool(workers(1))
    for value in (1, 2, 3):
        pool.submit(lambda actor, value: actor.fail.remote(value), value)
    assert pool.get_next() == 1
    with pytest.raises(ValueError, match="not 2"):
        pool.get_next()
    assert pool.get_next() == 3
    assert pool.has_free()


def test_ordered_after_unordered_is_refused_until_empty(shared_session: Any, latch: Latch) -> None:
    pool = ActorPool(workers(2))
    pool.submit(lambda actor, value: actor.double_after.remote(value, latch), 1)
    pool.submit(double, 2)
    assert pool.get_next_unordered() == 4
    # The first is still under way, and is the next in order.
    latch.open()
    assert pool.get_next_unordered() == 2
    pool.submit(double, 3)
    assert pool.get_next() == 6


def test_several_results_of_one_call(shared_session: Any) -> None:
    pool = ActorPool(workers(2))
    results = pool.map(lambda actor, value: actor.both.options(num_returns=2).remote(value), [1, 2, 3])
    assert list(results) == [[1, -1], [2, -2], [3, -3]]


def test_push_and_pop(shared_session: Any) -> None:
    first, second = workers(2)
    pool = ActorPool([first])
    assert pool.pop_idle() == first
    assert pool.pop_idle() is None
    assert not pool.has_free()
    pool.submit(double, 4)
    assert not pool.has_next()
    pool.push(second)  # Takes what waits.
    assert pool.get_next() == 8
    with pytest.raises(ValueError, match="already"):
        pool.push(second)
    pool.push(first)
    assert {pool.pop_idle(), pool.pop_idle()} == {first, second}


def test_a_busy_actor_cannot_be_pushed(shared_session: Any, latch: Latch) -> None:
    (actor,) = workers(1)
    pool = ActorPool([actor])
    pool.submit(lambda actor, value: actor.double_after.remote(value, latch), 1)
    with pytest.raises(ValueError, match="already"):
        pool.push(actor)
    latch.open()
    assert pool.get_next() == 2


def test_map_drops_what_was_there_before(shared_session: Any) -> None:
    pool = ActorPool(workers(1))
    pool.submit(double, 1)
    pool.submit(double, 2)
    assert list(pool.map(double, [10, 20])) == [20, 40]


def test_a_pool_without_actors_says_so(shared_session: Any) -> None:
    with pytest.raises(ValueError, match="no actors"):
        ActorPool([]).map(double, [1])


def test_a_dead_actor_leaves_the_pool(shared_session: Any) -> None:
    import os

    from support import Caller

    first, second = (Caller.options(num_cpus=0).remote() for _ in range(2))
    pool = ActorPool([first, second])
    assert pool._idle_actors == [first, second]
    pool.submit(lambda actor, _: actor.call.remote(os._exit, 1), None)
    pool.submit(lambda actor, value: actor.call.remote(abs, value), -1)
    pool.submit(lambda actor, value: actor.call.remote(abs, value), -2)
    assert len(pool._pending_submits) == 1
    with pytest.raises(aktis.exceptions.RayActorError):
        pool.get_next()
    assert [pool.get_next(), pool.get_next()] == [1, 2]
    assert pool._idle_actors == [first]
