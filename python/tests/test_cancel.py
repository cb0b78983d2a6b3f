"""Cancelling tasks and calls, running, queued and finished (behaviour 25)."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Latch, identity, is_alive, wait_until

pytestmark = pytest.mark.usefixtures("session")


@aktis.remote(max_retries=0)
def sleeps(latch: Latch, folder: Path | None = None) -> str:
    latch.arrive()
    try:
        for _ in range(3000):
            time.sleep(0.02)
    except KeyboardInterrupt:
        if folder is not None:
            (folder / "interrupted").touch()
        raise
    return "not cancelled"


def test_a_running_task_is_interrupted(latch: Latch, tmp_path: Path) -> None:
    ref = sleeps.remote(latch, tmp_path)
    (pid,) = latch.wait_for_arrivals(1)
    aktis.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)
    wait_until(lambda: (tmp_path / "interrupted").exists(), what="the task to be interrupted")
    assert is_alive(pid), "the worker goes on"
    assert aktis.get([identity.remote(n) for n in range(10)], timeout=20) == list(range(10))


def test_a_task_in_one_long_sleep_is_interrupted(latch: Latch) -> None:
    @aktis.remote
    def sleeps_long(latch: Latch) -> None:
        latch.arrive()
        time.sleep(60)

    ref = sleeps_long.remote(latch)
    latch.wait_for_arrivals(1)
    aktis.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)


def test_force_ends_the_worker(latch: Latch) -> None:
    @aktis.remote(max_retries=3)
    def stubborn(latch: Latch) -> None:
        latch.arrive()
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass

    ref = stubborn.remote(latch)
    (pid,) = latch.wait_for_arrivals(1)
    aktis.cancel(ref, force=True)
    with pytest.raises((exceptions.TaskCancelledError, exceptions.WorkerCrashedError)):
        aktis.get(ref, timeout=20)
    wait_until(lambda: not is_alive(pid), what="the worker to end")
    assert aktis.get(identity.remote(1), timeout=20) == 1
    assert len(latch.arrivals()) == 1, "it is not retried"


def test_queued_work_never_runs(tmp_path: Path) -> None:
    busy = Latch(tmp_path / "busy")
    running = [sleeps.remote(busy) for _ in range(2)]
    busy.wait_for_arrivals(2)
    queued_latch = Latch(tmp_path / "queued")
    queued = sleeps.remote(queued_latch)
    aktis.cancel(queued)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(queued, timeout=20)
    for ref in running:
        aktis.cancel(ref)
    for ref in running:
        with pytest.raises(exceptions.TaskCancelledError):
            aktis.get(ref, timeout=20)
    assert aktis.get(identity.remote(1), timeout=20) == 1
    assert queued_latch.arrivals() == []


def test_a_task_that_waits_for_its_input(latch: Latch, tmp_path: Path) -> None:
    slow = sleeps.remote(latch)
    other = Latch(tmp_path / "other")

    @aktis.remote
    def takes(value: Any, latch: Latch) -> None:
        latch.arrive()

    waiting = takes.remote(slow, other)
    aktis.cancel(waiting)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(waiting, timeout=20)
    aktis.cancel(slow)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(slow, timeout=20)
    assert other.arrivals() == []


def test_dependants_fail(latch: Latch) -> None:
    ref = sleeps.remote(latch)
    dependant = identity.remote(ref)
    latch.wait_for_arrivals(1)
    aktis.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(dependant, timeout=20)


def test_a_finished_task_is_not_affected() -> None:
    ref = identity.remote(1)
    assert aktis.get(ref) == 1
    aktis.cancel(ref)
    aktis.cancel(ref, force=True)
    assert aktis.get(ref) == 1
    put = aktis.put(2)
    aktis.cancel(put)
    assert aktis.get(put) == 2


def test_children_are_cancelled_too(tmp_path: Path) -> None:
    child_latch, parent_latch = Latch(tmp_path / "child"), Latch(tmp_path / "parent")

    @aktis.remote
    def parent(own: Latch, latch: Latch, folder: Path) -> Any:
        ref = sleeps.remote(latch, folder)
        own.arrive()
        return aktis.get(ref)

    ref = parent.remote(parent_latch, child_latch, tmp_path)
    child_latch.wait_for_arrivals(1)
    aktis.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)
    wait_until(lambda: (tmp_path / "interrupted").exists(), what="the child to be interrupted")


def test_children_are_spared_when_asked_for(tmp_path: Path) -> None:
    latch = Latch(tmp_path / "child")

    @aktis.remote
    def child(latch: Latch) -> str:
        latch.wait()
        (latch.folder / "finished").touch()
        return "finished"

    @aktis.remote
    def parent(latch: Latch) -> Any:
        return aktis.get(child.remote(latch))

    ref = parent.remote(latch)
    latch.wait_for_arrivals(1)
    aktis.cancel(ref, recursive=False)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)
    latch.open()
    wait_until(lambda: (latch.folder / "finished").exists(), what="the child to finish")


def test_coroutines_are_cancelled(tmp_path: Path) -> None:
    @aktis.remote
    class Sleeper:
        async def sleep(self, latch: Latch, folder: Path) -> None:
            latch.arrive()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                (folder / "cancelled").touch()
                raise

        async def answer(self) -> int:
            return 42

    actor = Sleeper.remote()
    latch = Latch(tmp_path / "latch")
    ref = actor.sleep.remote(latch, tmp_path)
    latch.wait_for_arrivals(1)
    aktis.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)
    wait_until(lambda: (tmp_path / "cancelled").exists(), what="the coroutine to be cancelled")
    assert aktis.get(actor.answer.remote(), timeout=20) == 42


def test_coroutines_are_cancelled_at_any_moment() -> None:
    @aktis.remote
    class Waits:
        def __init__(self) -> None:
            self.begun = self.cancelled = 0

        async def wait(self) -> None:
            self.begun += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

        async def counts(self) -> tuple[int, int]:
            return self.begun, self.cancelled

    actor = Waits.remote()
    for _ in range(200):
        ref = actor.wait.remote()
        aktis.cancel(ref)
        with pytest.raises(exceptions.TaskCancelledError):
            aktis.get(ref, timeout=20)

    def all_have_seen_it() -> bool:
        begun, cancelled = aktis.get(actor.counts.remote(), timeout=20)
        return begun == cancelled

    wait_until(all_have_seen_it, what="all that have begun to be cancelled")


def test_a_coroutine_is_cancelled_before_the_loop_of_its_group_has_begun_it(tmp_path: Path) -> None:
    @aktis.remote(concurrency_groups={"group": 2})
    class Busy:
        @aktis.method(concurrency_group="group")
        async def hold_up_the_loop(self, latch: Latch) -> int:
            latch.wait()
            return 1

        @aktis.method(concurrency_group="group")
        async def go_on(self, latch: Latch) -> None:
            await asyncio.sleep(0)
            latch.arrive()

        async def answer(self) -> int:
            return 42

    actor = Busy.remote()
    first, second = Latch(tmp_path / "first"), Latch(tmp_path / "second")
    running = actor.hold_up_the_loop.remote(first)
    first.wait_for_arrivals(1)
    waiting = actor.go_on.remote(second)
    # Before it answers this one, the main thread hands the call to the group's loop, which is held up.
    assert aktis.get(actor.answer.remote(), timeout=20) == 42
    aktis.cancel(waiting)
    assert aktis.get(actor.answer.remote(), timeout=20) == 42
    first.open()
    assert aktis.get(running, timeout=20) == 1
    # Room in the group shows that the cancelled call is over.
    aktis.get([actor.hold_up_the_loop.remote(first) for _ in range(2)], timeout=20)
    assert second.arrivals() == []


def test_queued_calls_of_actors_are_cancelled(tmp_path: Path) -> None:
    @aktis.remote
    class Worker:
        def wait(self, latch: Latch) -> int:
            latch.wait()
            return 1

        def touch(self, latch: Latch) -> None:
            latch.arrive()

    actor = Worker.remote()
    first, second = Latch(tmp_path / "first"), Latch(tmp_path / "second")
    running = actor.wait.remote(first)
    first.wait_for_arrivals(1)
    queued = actor.touch.remote(second)
    aktis.cancel(queued)
    first.open()
    assert aktis.get(running, timeout=20) == 1
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(queued, timeout=20)
    assert second.arrivals() == []


def test_generators_are_cancelled(tmp_path: Path) -> None:
    @aktis.remote
    def endless(folder: Path) -> Any:
        try:
            while True:
                yield 1
                time.sleep(0.01)
        except KeyboardInterrupt:
            (folder / "interrupted").touch()
            raise

    generator = endless.remote(tmp_path)
    assert aktis.get(next(generator)) == 1
    aktis.cancel(generator)
    with pytest.raises(exceptions.TaskCancelledError):
        for ref in generator:
            aktis.get(ref, timeout=20)


def test_a_task_can_ask_whether_it_was_cancelled(latch: Latch) -> None:
    @aktis.remote
    def asks(latch: Latch) -> bool:
        before = aktis.get_runtime_context().is_canceled()
        try:
            latch.arrive()
            time.sleep(60)
        except KeyboardInterrupt:
            pass
        (latch.folder / f"{before}-{aktis.get_runtime_context().is_canceled()}").touch()
        return True

    ref = asks.remote(latch)
    latch.wait_for_arrivals(1)
    aktis.cancel(ref)
    wait_until(lambda: (latch.folder / "False-True").exists(), what="the task to see it")


def test_what_can_be_cancelled() -> None:
    for wrong in (3, None, "ref", [aktis.put(1)], identity):
        with pytest.raises(TypeError):
            aktis.cancel(wrong)


def test_a_borrower_cancels_a_task_of_another_process(latch: Latch) -> None:
    @aktis.remote(num_cpus=0)
    class Canceller:
        def cancel(self, references: list[Any]) -> None:
            aktis.cancel(references[0])

    ref = sleeps.remote(latch)
    latch.wait_for_arrivals(1)
    aktis.get(Canceller.remote().cancel.remote([ref]), timeout=20)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)


def test_force_is_refused_for_a_call_of_an_actor() -> None:
    @aktis.remote(num_cpus=0)
    class Waits:
        async def forever(self) -> None:
            await asyncio.Event().wait()

    ref = Waits.remote().forever.remote()
    with pytest.raises(ValueError, match="force=True is not supported for actor tasks"):
        aktis.cancel(ref, force=True)
    aktis.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)
