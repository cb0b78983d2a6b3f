"""Deadlines: what is not done in time is cancelled, and `get` says so."""

import asyncio
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Caller, Latch, calls, get, identity, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")

SOON = 0.2


def assert_overdue(ref: Any) -> exceptions.TaskDeadlineError:
    with pytest.raises(exceptions.TaskDeadlineError) as raised:
        get(ref)
    return raised.value


def sleeps(latch: Latch) -> None:
    latch.arrive()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        (latch.folder / "interrupted").touch()
        raise


def test_the_error_says_what_happened(latch: Latch) -> None:
    error = assert_overdue(calls.options(deadline=SOON, name="slow").remote(sleeps, latch))
    assert isinstance(error, TimeoutError) and isinstance(error, exceptions.TaskCancelledError)
    assert "slow: it was not done within its deadline of 200ms" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.task_id) == (type(error), str(error), error.task_id)


def test_a_running_task_is_interrupted(latch: Latch) -> None:
    assert_overdue(calls.options(deadline=1).remote(sleeps, latch))
    wait_until(lambda: (latch.folder / "interrupted").exists(), what="the task to be interrupted")


def test_queued_work_never_runs(tmp_path: Path) -> None:
    busy, queued = Latch(tmp_path / "busy"), Latch(tmp_path / "queued")
    running = [calls.remote(busy.wait) for _ in range(2)]
    busy.wait_for_arrivals(2)
    overdue = calls.options(deadline=SOON).remote(queued.arrive)
    dependant = identity.remote(overdue)
    assert_overdue(overdue)
    assert_overdue(dependant)
    busy.open()
    get(running)
    assert get(identity.remote(1)) == 1
    assert queued.arrivals() == []


def test_children_are_cancelled_too(tmp_path: Path) -> None:
    latch = Latch(tmp_path / "child")

    @aktis.remote
    def parent(latch: Latch) -> Any:
        return aktis.get(calls.remote(sleeps, latch))

    ref = parent.options(deadline=1).remote(latch)
    latch.wait_for_arrivals(1)
    assert_overdue(ref)
    wait_until(lambda: (latch.folder / "interrupted").exists(), what="the child to be interrupted")


def test_calls_in_a_mailbox_never_run(tmp_path: Path) -> None:
    actor = Caller.remote()
    busy, queued = Latch(tmp_path / "busy"), Latch(tmp_path / "queued")
    running = actor.call.remote(busy.wait)
    busy.wait_for_arrivals(1)
    assert_overdue(actor.call.options(deadline=SOON).remote(queued.arrive))
    busy.open()
    get(running)
    assert get(actor.pid.remote()) != os.getpid()
    assert queued.arrivals() == []


def test_coroutines_are_cancelled(tmp_path: Path) -> None:
    @aktis.remote
    class Sleeper:
        @aktis.method(deadline=SOON)
        async def sleep(self, folder: Path) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                (folder / "cancelled").touch()
                raise

        async def answer(self) -> int:
            return 42

    actor = Sleeper.remote()
    assert get(actor.answer.remote()) == 42
    assert_overdue(actor.sleep.remote(tmp_path))
    wait_until(lambda: (tmp_path / "cancelled").exists(), what="the coroutine to be cancelled")
    assert get(actor.answer.options(deadline=60).remote()) == 42


def test_tries_share_a_deadline(tmp_path: Path) -> None:
    @aktis.remote(max_retries=-1, retry_exceptions=True, deadline=1)
    def fails(folder: Path) -> None:
        (folder / str(time.monotonic())).touch()
        raise ValueError

    @aktis.remote(max_retries=-1, deadline=1)
    def dies() -> None:
        os._exit(1)

    begin = time.monotonic()
    assert_overdue(fails.remote(tmp_path))
    assert_overdue(dies.remote())
    assert time.monotonic() - begin >= 1
    assert len(list(tmp_path.iterdir())) > 1


def test_a_generator_ends_with_the_error() -> None:
    @aktis.remote(deadline=1)
    def endless() -> Any:
        while True:
            yield 1
            time.sleep(0.01)

    *items, last = endless.remote()
    assert set(get(items)) == {1}
    assert_overdue(last)


def test_what_is_done_in_time_stays() -> None:
    refs = [identity.options(deadline=2).remote(n) for n in range(10)]
    assert get(refs[:5]) == [0, 1, 2, 3, 4]
    overdue = calls.options(deadline=2.5).remote(time.sleep, 60)
    assert_overdue(overdue)
    assert get(refs) == list(range(10)), "nobody had looked at the others before"


def test_a_deadline_that_never_comes() -> None:
    for deadline in (float("inf"), 1e300, 1e10):
        assert get(identity.options(deadline=deadline).remote(1)) == 1


def test_many_deadlines(latch: Latch) -> None:
    for _ in range(5):
        assert get([identity.options(deadline=3600).remote(n) for n in range(1000)]) == list(range(1000))
    busy = [calls.remote(latch.wait) for _ in range(2)]
    latch.wait_for_arrivals(2)
    refs = [identity.options(deadline=SOON).remote(n) for n in range(2000)]
    for ref in refs:
        assert_overdue(ref)
    latch.open()
    get(busy)
