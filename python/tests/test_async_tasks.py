"""The tasks that calls of asynchronous methods run in."""

import asyncio
import contextvars
from typing import Any

import pytest

import aktis

pytestmark = pytest.mark.usefixtures("shared_session")


@aktis.remote
class Tasks:
    """Looks at the task that its calls run in."""

    def __init__(self) -> None:
        self.kept: Any = None
        self.variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def add_to_variable(self, waits: bool) -> int:
        self.variable.set(self.variable.get() + 1)
        if waits:
            await asyncio.sleep(0.001)
            self.variable.set(self.variable.get() + 10)
            await asyncio.sleep(0)
        return self.variable.get()

    async def times_out(self) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "late"
        return "in time"

    async def keeps_its_task(self) -> bool:
        self.kept = asyncio.current_task()
        return self.kept is not None

    async def cancels_what_was_kept(self) -> bool:
        self.kept.cancel()
        return self.kept is asyncio.current_task()

    async def cancels_itself(self) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "ended before it could notice"

    async def same_task_all_the_way(self) -> bool:
        before = asyncio.current_task()
        await asyncio.sleep(0.001)
        return before is asyncio.current_task() and before in asyncio.all_tasks()

    async def other_tasks(self) -> int:
        return len(asyncio.all_tasks() - {asyncio.current_task()})

    async def sets_factory(self) -> None:
        asyncio.get_running_loop().set_task_factory(
            lambda loop, coroutine, **options: asyncio.Task(coroutine, loop=loop, name="ours", **options)
        )

    async def name(self) -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    async def fails_late(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("after a while")


def test_each_asynchronous_call_has_a_context_of_its_own() -> None:
    tasks = Tasks.remote()
    refs = [tasks.add_to_variable.remote(number % 3 == 0) for number in range(30)]
    assert aktis.get(refs) == [11 if number % 3 == 0 else 1 for number in range(30)]


def test_timeouts_and_failures_of_asynchronous_calls() -> None:
    tasks = Tasks.remote()
    assert aktis.get([tasks.times_out.remote(), tasks.times_out.remote()]) == ["late", "late"]
    with pytest.raises(ValueError, match="after a while"):
        aktis.get(tasks.fails_late.remote())


def test_a_task_that_an_asynchronous_call_has_kept_is_no_other_calls() -> None:
    tasks = Tasks.remote()
    assert aktis.get(tasks.keeps_its_task.remote())
    assert not aktis.get(tasks.cancels_what_was_kept.remote())
    assert aktis.get(tasks.cancels_itself.remote()) == "ended before it could notice"
    assert aktis.get([tasks.same_task_all_the_way.remote() for _ in range(5)]) == [True] * 5


def test_a_call_that_is_over_leaves_no_task() -> None:
    tasks = Tasks.remote()
    assert aktis.get([tasks.other_tasks.remote() for _ in range(3)]) == [0, 0, 0]
    assert aktis.get(tasks.same_task_all_the_way.remote())
    assert aktis.get(tasks.other_tasks.remote()) == 0


def test_calls_run_in_tasks_of_the_loops_own_factory() -> None:
    tasks = Tasks.remote()
    assert aktis.get(tasks.name.remote()) != "ours"
    aktis.get(tasks.sets_factory.remote())
    assert aktis.get([tasks.name.remote(), tasks.same_task_all_the_way.remote()]) == ["ours", True]
