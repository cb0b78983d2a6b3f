"""Scenarios of wake-ups that were once lost: work lay ready, and those who should have done it slept on.

Each was a matter of moments, so each test goes through its scenario many times.
"""

import asyncio
import os
import queue
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis.util.queue import Queue
from support import PATIENCE, Latch, get, identity, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")

ROUNDS = 100


@aktis.remote
def fails() -> None:
    raise ValueError("failed")


@aktis.remote
def waits(latch: Latch) -> None:
    latch.wait()


# --- actors with many calls ------------------------------------------------------------------------


class Steps:
    def step(self, number: int) -> int:
        return number

    def hold(self, latch: Latch) -> None:
        latch.wait()


class AsyncSteps:
    async def step(self, number: int) -> int:
        return number

    async def hold(self, latch: Latch) -> None:
        latch.wait()


@pytest.mark.parametrize(
    ("steps", "options"), [(Steps, {}), (Steps, {"max_concurrency": 2}), (AsyncSteps, {})]
)
def test_an_answer_is_seen_though_its_actor_is_stuck_in_the_next_call(
    steps: type, options: dict[str, int], tmp_path: Path
) -> None:
    actor = aktis.remote(steps).options(**options).remote()
    for number in range(ROUNDS // 5):
        latch = Latch(tmp_path / str(number))
        calls = [actor.step.remote(step) for step in range(200)]
        held = actor.hold.remote(latch)
        # The caller sleeps now and then, and wake-ups for answers may be delayed while more calls are queued.
        assert get(calls) == list(range(200))
        latch.open()
        get(held)


# --- tasks of tasks -------------------------------------------------------------------------------


@aktis.remote
def descends(depth: int) -> int:
    return get(identity.remote(0) if depth == 0 else descends.remote(depth - 1)) + 1


def test_tasks_wait_for_tasks_of_their_own() -> None:
    """Tasks in several generations on two CPUs hung: the last ones were queued, and the workers that had
    been given the CPUs of those who waited slept."""
    for number in range(ROUNDS):
        depth = number % 4
        assert get([descends.remote(depth) for _ in range(1 + number % 2)]) == [depth + 1] * (1 + number % 2)


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_task_returns_the_reference_of_its_child(cpus: int, no_session: None) -> None:
    """The driver waited for ever for a task that a worker had submitted and returned the reference of: the
    idle worker did not take in that it was done."""
    aktis.init(num_cpus=cpus)

    @aktis.remote
    def parent(number: int) -> list[Any]:
        return [identity.remote(number)]

    for number in range(ROUNDS):
        (child,) = get(parent.remote(number))
        assert get(child) == number


def test_actors_submit_many_tasks_side_by_side() -> None:
    """Several actors that submitted hundreds of tasks at once hung now and then, each with a few left."""

    @aktis.remote
    class Submitter:
        def submit(self, count: int) -> int:
            return len(get([identity.remote(None) for _ in range(count)]))

    submitters = [Submitter.remote() for _ in range(4)]
    for _ in range(ROUNDS // 2):
        assert get([submitter.submit.remote(300) for submitter in submitters]) == [300] * 4


# --- idle workers ---------------------------------------------------------------------------------


def test_a_task_runs_beside_a_long_one(tmp_path: Path) -> None:
    """With one worker in a long task, the next task was left to it though the other worker was idle."""
    for number in range(ROUNDS // 2):
        latch = Latch(tmp_path / str(number))
        long = waits.remote(latch)
        latch.wait_for_arrivals(1)
        with pytest.raises(ValueError, match="failed"):
            get([long, fails.remote(), long])
        assert not long.is_ready()
        latch.open()
        get(long)


def test_a_failure_ends_get_of_a_list_at_once(tmp_path: Path) -> None:
    """`get` of a list noticed only after 0.6 s that one of it had failed, if it had gone to sleep before."""

    @aktis.remote
    def fails_late() -> None:
        time.sleep(0.03)  # until the driver has gone to sleep
        raise ValueError("failed", time.time())

    late = []
    for number in range(8):
        latch = Latch(tmp_path / str(number))
        long = waits.remote(latch)
        latch.wait_for_arrivals(1)
        with pytest.raises(ValueError, match="failed") as raised:
            get([long, fails_late.remote()])
        late.append(time.time() - raised.value.args[1])
        latch.open()
        get(long)
    # The machine may be busy in some of the rounds; the delay was there in all.
    assert min(late) < 0.2


def test_callbacks_alone_wait_for_tasks() -> None:
    """Tasks stayed queued while all workers slept, if nobody was in `get` and each round had a new function
    that workers had to fetch."""
    for number in range(ROUNDS):

        def doubles(value: int) -> int:
            return 2 * value

        function = aktis.remote(doubles)
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        refs = [function.remote(value) for value in range(4)]
        for ref in refs:
            ref.add_done_callback(done.put)
        assert {done.get(timeout=PATIENCE) for _ in refs} == set(refs)
        assert get(refs) == [0, 2, 4, 6]
        if number % 3 == 0:
            time.sleep(0.02)  # the workers give back their CPUs, and go to sleep


# --- answers of actors ----------------------------------------------------------------------------


def test_two_tasks_over_a_queue() -> None:
    """A task that was in `get` of an actor's answer slept for ever: the answer had woken another thread."""

    @aktis.remote(num_cpus=0)
    def takes(items: Any, count: int) -> list[int]:
        return [items.get(timeout=PATIENCE) for _ in range(count)]

    @aktis.remote(num_cpus=0)
    def gives(items: Any, count: int) -> None:
        for number in range(count):
            items.put(number, timeout=PATIENCE)

    for _ in range(10):
        items: Queue[int] = Queue(maxsize=1)
        taken, given = takes.remote(items, 40), gives.remote(items, 40)
        assert get([taken, given]) == [list(range(40)), None]
        items.shutdown(force=True)


def test_an_actor_answers_and_is_killed() -> None:
    """A call that an actor had answered failed with ActorDiedError, if the actor was killed right after: its
    caller heard of the death before it had looked at its answers."""

    @aktis.remote(num_cpus=0)
    class Gate:
        def __init__(self) -> None:
            self.event = asyncio.Event()
            self.waiting = 0

        async def wait(self) -> str:
            self.waiting += 1
            await self.event.wait()
            return "through"

        async def count(self) -> int:
            return self.waiting

        async def open(self) -> None:
            self.event.set()
            # Those who wait have answered before this call does.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    @aktis.remote(num_cpus=0)
    def goes_through(gate: Any) -> str:
        return get(gate.wait.remote())

    for _ in range(40):
        gate = Gate.remote()
        answers = [gate.wait.remote(), goes_through.remote(gate)]
        wait_until(lambda gate=gate: get(gate.count.remote()) == 2, what="both to wait", pause=0.001)
        get(gate.open.remote())
        aktis.kill(gate)
        assert get(answers) == ["through", "through"]


# --- leases ---------------------------------------------------------------------------------------


@pytest.mark.one_node("it stops a worker that it finds among its own children")
def test_a_worker_that_comes_too_late_for_its_task_gives_the_cpu_back(session: Any, tmp_path: Path) -> None:
    """A worker that slept was given a CPU for a task, and another one was faster. It slept on with the CPU,
    and outlived its driver where that was on another node."""

    @aktis.remote
    def lingers(latch: Latch) -> int:
        latch.wait()
        return os.getpid()

    def are_free(cpus: int) -> bool:
        return aktis.available_resources().get("CPU", 0) == cpus

    def run_two(arrivals: int) -> list[int]:
        latch = Latch(tmp_path / str(len(list(tmp_path.iterdir()))))
        running = [lingers.remote(latch) for _ in range(2)]
        latch.wait_for_arrivals(arrivals)
        wait_until(lambda: are_free(0), what="both workers to be given CPUs")
        latch.open()
        return list(get(running))

    late = max(run_two(2))
    for _ in range(5):
        wait_until(lambda: are_free(2), what="both workers to give their CPUs back")
        os.kill(late, signal.SIGSTOP)
        assert late not in run_two(1)
        os.kill(late, signal.SIGCONT)
    wait_until(lambda: are_free(2), what="both workers to give their CPUs back")


# --- a driver that does nothing else --------------------------------------------------------------


@aktis.remote
def adds_byte(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"1")


@pytest.mark.one_node("the driver wakes the worker itself")
def test_what_is_queued_runs_though_its_driver_does_nothing_else(tmp_path: Path) -> None:
    """A worker that was woken just now and sleeps again is woken a little later for the next task. A
    driver that neither submits nor waits afterwards does not do that: the worker finds the task by itself."""
    path = tmp_path / "bytes"
    path.touch()
    for number in range(5 * ROUNDS):
        task = adds_byte.remote(path)
        wait_until(lambda size=number + 1: path.stat().st_size == size, pause=0)
        rest = time.perf_counter() + number % ROUNDS * 1e-6
        while time.perf_counter() < rest:
            pass
        del task
