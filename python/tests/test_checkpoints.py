"""Actors with checkpoints: their state after `kill -9`, how often each call counted, and bad cases."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@aktis.remote(max_restarts=20, checkpoint=10)
class Ledger:
    """Counts how often each number was added."""

    def __init__(self, folder: str = "") -> None:
        self.counts: dict[int, int] = {}
        self.total = 0
        if folder:
            Path(folder, f"made-{os.getpid()}").touch()

    def add(self, number: int) -> int:
        self.counts[number] = self.counts.get(number, 0) + 1
        self.total += 1
        return self.total

    def add_and_die(self, number: int, marker: str) -> int:
        self.add(number)
        try:
            os.mkdir(marker)
        except FileExistsError:
            return self.total
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    def fail(self, number: int) -> None:
        self.add(number)
        raise ValueError(f"no {number}")

    def save(self) -> None:
        aktis.checkpoint()

    @aktis.method(num_returns=2)
    def pair(self) -> tuple[int, int]:
        self.total += 1
        return self.total, -self.total

    @aktis.method(read_only=True)
    def pid(self) -> int:
        return os.getpid()

    @aktis.method(read_only=True)
    def seen(self) -> tuple[int, dict[int, int]]:
        return self.total, self.counts


@pytest.mark.parametrize("checkpoint", [1, 7, "1ms", True])
def test_every_call_counts_once_while_the_actor_is_killed_again_and_again(
    shared_session: Any, checkpoint: Any
) -> None:
    ledger = Ledger.options(checkpoint=checkpoint).remote()
    calls = 400
    stop = threading.Event()
    kills = 0

    def kill_often() -> None:
        nonlocal kills
        while not stop.is_set() and kills < 4:
            kill(aktis.get(ledger.pid.remote()))
            kills += 1

    killer = threading.Thread(target=kill_often)
    killer.start()
    answers: list[int] = []
    for start in range(0, calls, 50):
        answers += aktis.get([ledger.add.remote(number) for number in range(start, start + 50)])
    stop.set()
    killer.join()
    assert kills > 0
    assert answers == list(range(1, calls + 1))
    assert aktis.get(ledger.seen.remote()) == (calls, dict.fromkeys(range(calls), 1))


def test_the_constructor_runs_once_and_the_state_comes_back(shared_session: Any, tmp_path: Path) -> None:
    ledger = Ledger.remote(str(tmp_path))
    assert aktis.get([ledger.add.remote(number) for number in range(25)]) == list(range(1, 26))
    first = aktis.get(ledger.pid.remote())
    kill(first)
    assert aktis.get(ledger.seen.remote()) == (25, dict.fromkeys(range(25), 1))
    assert aktis.get(ledger.pid.remote()) != first
    assert len(list(tmp_path.iterdir())) == 1


def test_a_call_that_dies_half_way_runs_again_on_the_state_before_it(
    shared_session: Any, tmp_path: Path
) -> None:
    ledger = Ledger.remote()
    calls = [ledger.add.remote(1), ledger.add_and_die.remote(2, str(tmp_path / "died")), ledger.add.remote(3)]
    assert aktis.get(calls) == [1, 2, 3]
    assert aktis.get(ledger.seen.remote()) == (3, {1: 1, 2: 1, 3: 1})


def test_calls_that_raise_and_calls_with_several_values_are_replayed(shared_session: Any) -> None:
    ledger = Ledger.remote()
    with pytest.raises(ValueError, match="no 5"):
        aktis.get(ledger.fail.remote(5))
    assert aktis.get(list(ledger.pair.remote())) == [2, -2]
    kill(aktis.get(ledger.pid.remote()))
    assert aktis.get(ledger.seen.remote()) == (2, {5: 1})


def test_large_arguments_and_answers_come_with_a_checkpoint(shared_session: Any) -> None:
    @aktis.remote(max_restarts=5, checkpoint=1000)
    class Keeper:
        def __init__(self) -> None:
            self.data = b""

        def append(self, data: bytes) -> int:
            self.data += data
            return len(self.data)

        def swap(self, data: bytes) -> bytes:
            before, self.data = self.data, data
            return before

        @aktis.method(read_only=True)
        def pid(self) -> int:
            return os.getpid()

    keeper = Keeper.remote()
    large = os.urandom(3 << 20)
    assert aktis.get(keeper.append.remote(large)) == len(large)
    kill(aktis.get(keeper.pid.remote()))
    assert aktis.get(keeper.swap.remote(aktis.put(b"small"))) == large
    kill(aktis.get(keeper.pid.remote()))
    assert aktis.get(keeper.append.remote(b"!")) == 6


def test_work_that_the_actor_submits_is_not_submitted_again_by_a_replay(
    shared_session: Any, tmp_path: Path
) -> None:
    @aktis.remote
    def note(number: int) -> int:
        (tmp_path / f"{number}-{time.monotonic_ns()}").touch()
        return number

    @aktis.remote(max_restarts=5, checkpoint=1000)
    class Submitter:
        def __init__(self) -> None:
            self.noted: list[int] = []

        def note(self, number: int) -> list[int]:
            self.noted.append(aktis.get(note.remote(number)))
            return self.noted

        @aktis.method(read_only=True)
        def pid(self) -> int:
            return os.getpid()

    submitter = Submitter.remote()
    assert aktis.get([submitter.note.remote(number) for number in range(3)])[2] == [0, 1, 2]
    kill(aktis.get(submitter.pid.remote()))
    assert aktis.get(submitter.note.remote(3)) == [0, 1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_class_chooses_what_is_saved(shared_session: Any) -> None:
    @aktis.remote(max_restarts=5, checkpoint=2)
    class Locked:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.count = 0

        def __checkpoint__(self) -> dict[str, int]:
            return {"count": self.count}

        def __restore__(self, saved: dict[str, int]) -> None:
            self.lock = threading.Lock()
            self.count = saved["count"]

        def add(self) -> int:
            with self.lock:
                self.count += 1
            return self.count

        @aktis.method(read_only=True)
        def pid(self) -> int:
            return os.getpid()

    locked = Locked.remote()
    assert aktis.get([locked.add.remote() for _ in range(5)]) == [1, 2, 3, 4, 5]
    kill(aktis.get(locked.pid.remote()))
    assert aktis.get(locked.add.remote()) == 6


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_a_named_directory_has_the_files_until_the_actor_ends(shared_session: Any, tmp_path: Path) -> None:
    ledger = Ledger.options(checkpoint_directory=str(tmp_path)).remote()
    aktis.get(ledger.add.remote(1))
    assert files_in(tmp_path) == ["checkpoint", "lock", "log"]
    kill(aktis.get(ledger.pid.remote()))
    assert aktis.get(ledger.add.remote(2)) == 2
    aktis.kill(ledger)
    deadline = time.monotonic() + 10
    while files_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert files_in(tmp_path) == []


# --- bad cases --------------------------------------------------------------------------------


def test_a_state_that_cannot_be_pickled_is_said_when_the_actor_is_created(shared_session: Any) -> None:
    @aktis.remote(max_restarts=1, checkpoint=1)
    class Locked:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def ready(self) -> None: ...

    with pytest.raises(exceptions.ActorDiedError, match=r"its state could not be saved(.|\n)*lock"):
        aktis.get(Locked.remote().ready.remote())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def age(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[8] = 9
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("harm", "told"),
    [(cut, "it is damaged"), (age, "it has version 9"), (os.remove, "No such file")],
)
def test_a_checkpoint_that_cannot_be_read_ends_the_actor_in_words(
    shared_session: Any, tmp_path: Path, harm: Any, told: str
) -> None:
    ledger = Ledger.options(checkpoint_directory=str(tmp_path)).remote()
    aktis.get(ledger.add.remote(1))
    pid = aktis.get(ledger.pid.remote())
    harm(next(tmp_path.rglob("checkpoint")))
    kill(pid)
    with pytest.raises(exceptions.ActorDiedError, match=rf"its checkpoint cannot be read(.|\n)*{told}"):
        aktis.get(ledger.add.remote(2))


def test_a_replay_that_diverges_is_found_and_said(shared_session: Any) -> None:
    @aktis.remote(max_restarts=1, checkpoint=1000)
    class Clock:
        def now(self) -> int:
            return time.monotonic_ns()

        @aktis.method(read_only=True)
        def pid(self) -> int:
            return os.getpid()

    clock = Clock.remote()
    aktis.get(clock.now.remote())
    kill(aktis.get(clock.pid.remote()))
    with pytest.raises(exceptions.ActorDiedError, match=r"replay(.|\n)*diverged(.|\n)*hint"):
        aktis.get(clock.now.remote())


def test_a_directory_that_cannot_be_written_is_said(shared_session: Any) -> None:
    ledger = Ledger.options(checkpoint_directory="/proc/none").remote()
    with pytest.raises(exceptions.ActorDiedError, match="its calls cannot be logged in /proc/none"):
        aktis.get(ledger.add.remote(1))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_restarts": 0}, "no restarts"),
        ({"max_concurrency": 2}, "several calls at a time"),
        ({"checkpoint_directory": "here"}, "absolute path"),
        ({"checkpoint": "0s"}, "at least '1ms'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    shared_session: Any, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        Ledger.options(**options).remote()


def test_checkpoint_outside_an_actor_is_refused(shared_session: Any) -> None:
    with pytest.raises(Exception, match="outside an actor with checkpoints"):
        aktis.checkpoint()
