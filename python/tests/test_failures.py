"""Failures: workers and actors that die, retries, and what is said about it (behaviours 21 to 23)."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Latch, is_alive, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")


def count(folder: Path) -> int:
    """Adds one to a count that outlives processes; gives the new value."""
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder / "count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b".")
    os.close(descriptor)
    return counted(folder)


def counted(folder: Path) -> int:
    return (folder / "count").stat().st_size if (folder / "count").exists() else 0


@aktis.remote
def alive() -> int:
    return os.getpid()


# --- 21: tasks ------------------------------------------------------------------------------------


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(7)


@pytest.mark.parametrize(
    ("how", "said"),
    [(kill_self, "SIGKILL"), (crash, "SIGSEGV"), (leave, "exited with code 7")],
    ids=["kill", "crash", "exit"],
)
def test_the_death_of_a_worker_is_explained(how: Any, said: str) -> None:
    @aktis.remote(max_retries=0)
    def dies() -> None:
        print("last words", file=sys.stderr, flush=True)
        how()

    with pytest.raises(exceptions.WorkerCrashedError, match=said) as caught:
        aktis.get(dies.remote())
    assert "last words" in str(caught.value)
    assert "dies" in str(caught.value)
    assert caught.value.pid is not None
    assert not is_alive(caught.value.pid)
    assert aktis.get(alive.remote()) > 0


def test_system_failures_are_retried_three_times(tmp_path: Path) -> None:
    @aktis.remote
    def always(folder: Path) -> None:
        count(folder)
        kill_self()

    with pytest.raises(exceptions.WorkerCrashedError):
        aktis.get(always.remote(tmp_path))
    assert counted(tmp_path) == 4

    @aktis.remote(max_retries=1)
    def once(folder: Path) -> int:
        if count(folder) < 2:
            kill_self()
        return counted(folder)

    assert aktis.get(once.remote(tmp_path / "once")) == 2


def test_exceptions_are_retried_only_when_asked_for(tmp_path: Path) -> None:
    @aktis.remote
    def fails(folder: Path, successes_after: int = 100) -> int:
        if count(folder) <= successes_after:
            raise ValueError("not yet")
        return counted(folder)

    with pytest.raises(ValueError):
        aktis.get(fails.remote(tmp_path / "plain"))
    assert counted(tmp_path / "plain") == 1
    with pytest.raises(ValueError):
        aktis.get(fails.options(retry_exceptions=True, max_retries=2).remote(tmp_path / "all"))
    assert counted(tmp_path / "all") == 3
    assert aktis.get(fails.options(retry_exceptions=[ValueError]).remote(tmp_path / "some", 2)) == 3
    with pytest.raises(ValueError):
        aktis.get(fails.options(retry_exceptions=[KeyError, OSError]).remote(tmp_path / "others"))
    assert counted(tmp_path / "others") == 1


def test_a_worker_that_is_killed_from_outside(latch: Latch) -> None:
    @aktis.remote(max_retries=0)
    def waits(latch: Latch) -> None:
        latch.wait()

    ref = waits.remote(latch)
    (pid,) = latch.wait_for_arrivals(1)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(exceptions.WorkerCrashedError, match=str(pid)):
        aktis.get(ref)


def test_what_a_dead_worker_would_have_made_fails_its_dependants(latch: Latch) -> None:
    @aktis.remote(max_retries=0)
    def waits(latch: Latch) -> int:
        latch.wait()
        return 1

    @aktis.remote
    def adds(x: int) -> int:
        return x + 1

    ref = waits.remote(latch)
    dependant = adds.remote(ref)
    (pid,) = latch.wait_for_arrivals(1)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(exceptions.WorkerCrashedError):
        aktis.get(dependant)


def test_bad_habits_of_tasks() -> None:
    @aktis.remote(max_retries=0)
    def closes_everything() -> str:
        os.closerange(3, 1024)
        return "done"

    @aktis.remote(max_retries=0)
    def forks() -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return 1

    @aktis.remote(max_retries=0)
    def leaves_a_thread() -> int:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return 2

    @aktis.remote(max_retries=0)
    def ignores_signals() -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        return 3

    assert aktis.get(forks.remote(), timeout=30) == 1
    assert aktis.get(leaves_a_thread.remote(), timeout=30) == 2
    assert aktis.get(ignores_signals.remote(), timeout=30) == 3
    try:
        assert aktis.get(closes_everything.remote(), timeout=30) == "done"
    except exceptions.WorkerCrashedError:
        pass  # it closed what its worker stands on
    assert aktis.get(alive.remote(), timeout=30) > 0


def test_a_module_that_is_missing_in_workers() -> None:
    class Unloadable:
        def __reduce__(self) -> Any:
            return __import__, ("no_such_module_anywhere",)

    @aktis.remote
    def takes(value: Any) -> None:
        pass

    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        aktis.get(takes.remote(Unloadable()))


# --- 22: actors -----------------------------------------------------------------------------------


@aktis.remote
class Fragile:
    def __init__(self, folder: Path | None = None) -> None:
        self.calls = 0
        self.folder = folder
        if folder is not None:
            count(folder / "lives")

    def pid(self) -> int:
        return os.getpid()

    def add(self) -> int:
        self.calls += 1
        return self.calls

    def wait(self, latch: Latch) -> int:
        latch.wait()
        return self.add()

    def die(self) -> None:
        kill_self()

    def die_until(self, deaths: int) -> int:
        assert self.folder is not None
        if count(self.folder / "deaths") <= deaths:
            kill_self()
        return counted(self.folder / "deaths")

    def fail_until(self, failures: int) -> int:
        assert self.folder is not None
        if count(self.folder / "failures") <= failures:
            raise ValueError("not yet")
        return counted(self.folder / "failures")

    def mixed(self, tries: int) -> int:
        assert self.folder is not None
        number = count(self.folder / "mixed")
        if number > tries:
            return number
        if number % 2:
            raise ValueError("not yet")
        kill_self()
        return 0

    def again(self) -> bool:
        return aktis.get_runtime_context().was_current_actor_reconstructed


def test_an_actor_without_restarts_is_gone() -> None:
    actor = Fragile.remote()
    with pytest.raises(exceptions.ActorDiedError, match="SIGKILL"):
        aktis.get(actor.die.remote())
    for _ in range(2):
        with pytest.raises(exceptions.ActorDiedError):
            aktis.get(actor.add.remote())


def test_an_actor_is_restarted(tmp_path: Path) -> None:
    actor = Fragile.options(max_restarts=2).remote(tmp_path)
    pid = aktis.get(actor.pid.remote())
    assert aktis.get([actor.add.remote(), actor.add.remote()]) == [1, 2]
    for lives in (2, 3):
        with pytest.raises(exceptions.ActorError):
            aktis.get(actor.die.remote())
        assert aktis.get(actor.add.remote(), timeout=30) == 1, "its state is that of a new one"
        assert counted(tmp_path / "lives") == lives
    assert aktis.get(actor.pid.remote()) != pid
    assert aktis.get(actor.again.remote()) is True
    with pytest.raises(exceptions.ActorError):
        aktis.get(actor.die.remote())
    with pytest.raises(exceptions.ActorDiedError):
        aktis.get(actor.add.remote(), timeout=30)


def test_calls_in_flight_fail_and_later_ones_succeed(latch: Latch) -> None:
    actor = Fragile.options(max_restarts=1).remote()
    ref = actor.wait.remote(latch)
    (pid,) = latch.wait_for_arrivals(1)
    os.kill(pid, signal.SIGKILL)
    later = [actor.add.remote() for _ in range(3)]
    with pytest.raises(exceptions.ActorError):
        aktis.get(ref)
    answers = []
    for each in later:
        try:
            answers.append(aktis.get(each, timeout=30))
        except exceptions.ActorError:
            assert not answers, "those that were in flight fail, and none after them"
    assert answers == list(range(1, len(answers) + 1))
    assert aktis.get(actor.add.remote(), timeout=30) == len(answers) + 1


def test_calls_are_retried_when_asked_for(tmp_path: Path) -> None:
    actor = Fragile.options(max_restarts=-1, max_task_retries=3).remote(tmp_path)
    assert aktis.get(actor.die_until.remote(2), timeout=30) == 3
    with pytest.raises(exceptions.ActorError):
        aktis.get(actor.die_until.options(max_task_retries=0).remote(100), timeout=30)


def test_exceptions_of_methods_are_retried_when_asked_for(tmp_path: Path) -> None:
    actor = Fragile.remote(tmp_path)
    method = actor.fail_until.options(max_task_retries=2, retry_exceptions=True)
    assert aktis.get(method.remote(2), timeout=30) == 3
    with pytest.raises(ValueError):
        aktis.get(method.remote(100), timeout=30)
    assert counted(tmp_path / "failures") == 6
    with pytest.raises(ValueError):
        aktis.get(actor.fail_until.options(max_task_retries=2, retry_exceptions=[KeyError]).remote(100))
    assert counted(tmp_path / "failures") == 7


def test_exceptions_and_deaths_share_one_budget(tmp_path: Path) -> None:
    actor = Fragile.options(max_restarts=-1).remote(tmp_path)
    method = actor.mixed.options(max_task_retries=4, retry_exceptions=True)
    assert aktis.get(method.remote(4), timeout=60) == 5
    with pytest.raises((ValueError, exceptions.ActorError)):
        aktis.get(method.remote(100), timeout=60)
    assert counted(tmp_path / "mixed") == 10


def test_kill_with_a_restart() -> None:
    actor = Fragile.options(max_restarts=1).remote()
    pid = aktis.get(actor.pid.remote())
    aktis.kill(actor, no_restart=False)
    wait_until(lambda: not is_alive(pid), what="the first life to end")
    assert aktis.get(actor.pid.remote(), timeout=30) != pid
    aktis.kill(actor)
    with pytest.raises(exceptions.ActorDiedError):
        aktis.get(actor.add.remote(), timeout=30)


def test_calls_after_a_kill_are_of_the_next_life() -> None:
    actor = Fragile.options(max_restarts=-1).remote()
    for _ in range(5):
        aktis.get(actor.add.remote(), timeout=30)
        aktis.kill(actor, no_restart=False)
        assert aktis.get([actor.add.remote() for _ in range(3)], timeout=30) == [1, 2, 3]


def test_order_holds_over_a_restart(latch: Latch) -> None:
    @aktis.remote(max_restarts=1, max_task_retries=1)
    class Log:
        def __init__(self) -> None:
            self.items: list[int] = []

        def add(self, item: int, latch: Latch | None = None) -> list[int]:
            if latch is not None:
                latch.wait()
            self.items.append(item)
            return list(self.items)

    log = Log.remote()
    refs = [log.add.remote(0, latch), *(log.add.remote(number) for number in range(1, 20))]
    (pid,) = latch.wait_for_arrivals(1)
    os.kill(pid, signal.SIGKILL)
    latch.wait_for_arrivals(2)
    latch.open()
    assert aktis.get(refs, timeout=30)[-1] == list(range(20))


# --- 23: objects ----------------------------------------------------------------------------------


def test_objects_survive_the_process_that_made_them() -> None:
    @aktis.remote
    class Maker:
        def make(self) -> list[Any]:
            return [aktis.put(bytes(500_000)), aktis.put("small")]

    maker = Maker.remote()
    large, small = aktis.get(maker.make.remote())
    aktis.kill(maker)
    with pytest.raises(exceptions.ActorDiedError):
        aktis.get(maker.make.remote())
    assert len(aktis.get(large, timeout=30)) == 500_000
    assert aktis.get(small, timeout=30) == "small"


def test_results_survive_their_worker() -> None:
    @aktis.remote
    def makes() -> tuple[int, bytes]:
        return os.getpid(), bytes(500_000)

    ref = makes.remote()
    pid = aktis.get(ref)[0]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), what="the worker to end")
    assert len(aktis.get(ref)[1]) == 500_000


def test_tries_of_a_failing_task_are_spaced(session: Any) -> None:
    @aktis.remote(num_cpus=0, max_retries=5, retry_exceptions=[ValueError])
    def fails() -> None:
        raise ValueError

    begin = time.monotonic()
    with pytest.raises(ValueError):
        aktis.get(fails.remote())
    # 10 + 20 + 40 + 80 + 160 ms
    assert time.monotonic() - begin >= 0.31
