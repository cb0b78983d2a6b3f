"""Faults: processes killed and stopped at random instants, under load, and a store without room."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from aktis._engine import Runtime, current
from aktis.util import debug
from aktis.util._runtime import state
from support import Latch, children_of, is_alive, open_files, wait_until

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.one_node("it finds the workers that it kills and stops among its own children"),
]

PATIENCE = 40
LARGE = 300_000


def runtime() -> Runtime:
    found = current()
    assert found is not None
    return found


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=PATIENCE)


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Whether there still was such a process of ours to be killed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def killer(victims: Callable[[], list[int]], seed: int, pause: float = 0.01) -> Iterator[list[int]]:
    """Kills one of the victims now and then while the block runs; gives the pids of those that it killed."""
    dice = random.Random(seed)
    killed: list[int] = []
    done = threading.Event()

    def run() -> None:
        while not done.wait(dice.uniform(0, 2 * pause)):
            pids = [pid for pid in victims() if pid not in killed]
            if pids and kill(pid := dice.choice(pids)):
                killed.append(pid)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join(PATIENCE)


def count(folder: Path) -> int:
    """Adds one to a count that outlives processes; gives the new value."""
    descriptor = os.open(folder / "count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b".")
    os.close(descriptor)
    return counted(folder)


def counted(folder: Path) -> int:
    return (folder / "count").stat().st_size if (folder / "count").exists() else 0


@aktis.remote(max_retries=-1)
def square(number: int) -> int:
    return number * number


@aktis.remote(max_retries=-1)
def large(number: int) -> bytes:
    return number.to_bytes(4, "big") * (LARGE // 4)


@aktis.remote(max_retries=-1)
def size_of(value: bytes) -> int:
    return len(value)


@aktis.remote(max_retries=-1)
def nested(number: int) -> int:
    return sum(aktis.get([square.remote(number), square.remote(number + 1)]))


@aktis.remote(num_cpus=2)
def two_cpus() -> int:
    return 2


def all_is_well() -> None:
    """All workers work, and nothing is left of what was done before."""
    assert get([square.remote(number) for number in range(50)]) == [number**2 for number in range(50)]
    wait_until(lambda: get(two_cpus.remote()) == 2, what="both CPUs to be free")
    wait_until(lambda: debug.store_stats()["all_objects"] == 0, what="the store to be empty")
    assert not [row for row in state("tasks") if row["state"] not in ("FINISHED", "FAILED")]


# --- workers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_are_killed_under_load(seed: int) -> None:
    get(square.remote(1))
    files, threads = open_files(), threading.active_count()
    with killer(runtime().worker_pids, seed) as killed:
        number = 0
        while len(killed) < 120:
            numbers = range(number, number + 40)
            refs = [
                ([square.remote(n) for n in numbers], [n * n for n in numbers]),
                ([nested.remote(n) for n in numbers[:4]], [n * n + (n + 1) ** 2 for n in numbers[:4]]),
                ([size_of.remote(large.remote(n)) for n in numbers[:4]], [LARGE] * 4),
                (
                    [large.remote(n) for n in numbers[:2]],
                    [n.to_bytes(4, "big") * (LARGE // 4) for n in numbers[:2]],
                ),
            ]
            for given, expected in refs:
                assert get(given) == expected
            number += 40
    del refs, given
    all_is_well()
    wait_until(lambda: not any(map(is_alive, killed)), what="the killed to be gone")
    # The template and a few workers are left; workers that are not needed end after a while.
    wait_until(lambda: len(children_of(os.getpid())) <= 1 + 4, what="workers to end")
    assert open_files() <= files + 4 * 5
    assert threading.active_count() <= threads


def test_retries_are_counted_exactly(tmp_path: Path) -> None:
    """Each kill from outside is one attempt, no more and no less."""

    @aktis.remote
    def waits(folder: Path, latch: Latch) -> int:
        count(folder)
        latch.wait()
        return counted(folder)

    for retries, deaths in ((0, 1), (2, 3), (2, 2), (-1, 6)):
        folder = tmp_path / f"{retries}-{deaths}"
        folder.mkdir()
        latch = Latch(folder / "latch")
        ref = waits.options(max_retries=retries).remote(folder, latch)
        for death in range(1, deaths + 1):
            pids = latch.wait_for_arrivals(death)
            (pid,) = [pid for pid in pids if is_alive(pid)]
            kill(pid)
            wait_until(lambda pid=pid: not is_alive(pid), what="the worker to die")
        if 0 <= retries < deaths:
            with pytest.raises(exceptions.WorkerCrashedError, match="SIGKILL"):
                get(ref)
            assert counted(folder) == retries + 1
        else:
            latch.wait_for_arrivals(deaths + 1)
            latch.open()
            assert get(ref) == deaths + 1
    all_is_well()


def test_a_worker_dies_with_references_of_others() -> None:
    """What only a dead worker held is freed; what others hold too is not."""

    @aktis.remote
    class Keeper:
        def keep(self, refs: list[Any]) -> int:
            self.refs = [*refs, aktis.put(bytes(LARGE)), large.remote(1)]
            self.values = aktis.get(self.refs)
            return os.getpid()

    kept = aktis.put(bytes(LARGE))
    for round_number in range(5):
        keeper = Keeper.remote()
        pid = get(keeper.keep.remote([kept, aktis.put(bytes(LARGE)), large.remote(round_number)]))
        kill(pid)
        with pytest.raises(exceptions.ActorDiedError):
            get(keeper.keep.remote([]))
    del keeper
    wait_until(lambda: debug.store_stats()["all_objects"] == 1, what="all but one object to be freed")
    assert get(kept) == bytes(LARGE)
    del kept
    all_is_well()


def test_generators_survive_the_death_of_their_workers(tmp_path: Path) -> None:
    @aktis.remote(max_retries=-1)
    def generates(count: int) -> Iterator[tuple[int, bytes]]:
        for number in range(count):
            yield number, bytes(number * 100)

    with killer(runtime().worker_pids, seed=3, pause=0.015) as killed:
        rounds = 0
        while len(killed) < 30:
            rounds += 1
            found = [aktis.get(ref, timeout=PATIENCE) for ref in generates.remote(60)]
            assert found == [(number, bytes(number * 100)) for number in range(60)]
    assert rounds > 1
    del found
    all_is_well()


def test_wait_and_callbacks_under_fire() -> None:
    with killer(runtime().worker_pids, seed=4) as killed:
        called = []
        total = 0
        while len(killed) < 30:
            refs = [square.remote(number) for number in range(100)]
            total += len(refs)
            for ref in refs:
                ref.future().add_done_callback(lambda future: called.append(future.result()))
            pending = list(refs)
            seen = []
            while pending:
                ready, pending = aktis.wait(pending, num_returns=min(7, len(pending)), timeout=PATIENCE)
                assert ready, "nothing for a long time"
                seen += get(ready)
            assert sorted(seen) == [number**2 for number in range(100)]
    wait_until(lambda: len(called) == total, what="all callbacks to be called")


@aktis.remote(num_cpus=0)
class Shelf:
    """Keeps references beyond the life of those who made them."""

    def __init__(self) -> None:
        self.refs: list[Any] = []

    def keep(self, refs: list[Any]) -> int:
        self.refs += refs
        return len(self.refs)

    def get(self) -> list[Any]:
        return self.refs


def test_another_attempt_makes_other_objects() -> None:
    """What a retried task makes is not taken for what its first attempt has made."""

    @aktis.remote(max_retries=2)
    def makes(shelf: Any) -> int:
        made = [
            aktis.put(os.getpid()),
            square.remote(os.getpid()),
            aktis.put(bytes([os.getpid() % 256]) * LARGE),
        ]
        if aktis.get(shelf.keep.remote(made)) < 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    shelf = Shelf.remote()
    last = get(makes.remote(shelf))
    refs = get(shelf.get.remote())
    assert len(set(refs)) == 9
    pids = get(refs[::3])
    assert pids[2] == last
    assert len(set(pids)) == 3
    assert [value[0] for value in get(refs[2::3])] == [pid % 256 for pid in pids]
    assert get(refs[7]) == last * last


def test_another_life_makes_other_objects() -> None:
    @aktis.remote(max_restarts=1)
    class Maker:
        def __init__(self, shelf: Any) -> None:
            aktis.get(shelf.keep.remote([aktis.put(os.getpid()), square.remote(os.getpid())]))

        def pid(self) -> int:
            return os.getpid()

    shelf = Shelf.remote()
    maker = Maker.options(max_task_retries=-1).remote(shelf)
    first = get(maker.pid.remote())
    kill(first)
    wait_until(lambda: not is_alive(first), what="the first life to end")
    second = get(maker.pid.remote())
    refs = get(shelf.get.remote())
    assert len(set(refs)) == 4
    assert get([refs[0], refs[2], refs[3]]) == [first, second, second * second]


# --- the template ---------------------------------------------------------------------------------


def test_the_template_is_killed(latch: Latch) -> None:
    """Its workers die with it; another one takes its place, and what ran is run again."""

    @aktis.remote
    class Counter:
        def __init__(self) -> None:
            self.value = 0

        def add(self) -> int:
            self.value += 1
            return self.value

    survivor = Counter.options(max_restarts=-1, max_task_retries=-1).remote()
    get(survivor.add.remote())
    for _ in range(3):
        template = wait_until(runtime().template_pid, what="a template")
        workers = children_of(template)
        refs = [square.remote(number) for number in range(200)]
        kill(template)
        assert get(refs) == [number**2 for number in range(200)]
        assert get(survivor.add.remote()) >= 1
        wait_until(lambda pids=workers: not any(map(is_alive, pids)), what="its workers to end")
        assert wait_until(runtime().template_pid, what="another template") != template
    del survivor
    all_is_well()


def test_the_template_is_stopped() -> None:
    """Nothing is forked meanwhile; what needs no new process goes on."""
    get(square.remote(1))
    template = runtime().template_pid()
    assert template is not None
    kill(template, signal.SIGSTOP)
    try:
        assert get([square.remote(number) for number in range(100)]) == [number**2 for number in range(100)]
        (victim, *_) = runtime().worker_pids()
        kill(victim)
        refs = [square.remote(number) for number in range(100)]
        time.sleep(1)  # how long it is stopped
    finally:
        kill(template, signal.SIGCONT)
    assert get(refs) == [number**2 for number in range(100)]
    all_is_well()


# --- stopped workers ------------------------------------------------------------------------------


def test_a_worker_is_stopped_for_a_while(latch: Latch) -> None:
    @aktis.remote(max_retries=0)
    def waits(latch: Latch) -> int:
        latch.wait()
        return os.getpid()

    ref = waits.remote(latch)
    (pid,) = latch.wait_for_arrivals(1)
    kill(pid, signal.SIGSTOP)
    try:
        latch.open()
        # The other worker does all the rest.
        assert get([square.remote(number) for number in range(500)]) == [number**2 for number in range(500)]
        assert aktis.wait([ref], timeout=2) == ([], [ref])
    finally:
        kill(pid, signal.SIGCONT)
    assert get(ref) == pid, "it was slow, not dead"
    all_is_well()


# --- actors ---------------------------------------------------------------------------------------


@aktis.remote
class Ordered:
    """Answers calls in order, and counts its lives."""

    def __init__(self, folder: Path | None = None) -> None:
        self.last = -1
        if folder is not None:
            count(folder)

    def call(self, number: int) -> tuple[int, bool]:
        in_order = number > self.last
        self.last = number
        return number, in_order

    def pid(self) -> int:
        return os.getpid()

    def wait(self, folder: Path, latch: Latch) -> int:
        count(folder)
        latch.wait()
        return os.getpid()


def test_an_actor_is_killed_under_load(tmp_path: Path) -> None:
    actor = Ordered.options(max_restarts=-1, max_task_retries=-1).remote(tmp_path)
    get(actor.pid.remote())

    def victims() -> list[int]:
        rows = state("actors")
        return [row["pid"] for row in rows if row["state"] == "ALIVE" and row.get("pid")]

    with killer(victims, seed=5, pause=0.03) as killed:
        number = 0
        while len(killed) < 40:
            refs = [actor.call.remote(n) for n in range(number, number + 100)]
            answers = get(refs)
            assert [n for n, _ in answers] == list(range(number, number + 100)), "each has its own answer"
            assert all(in_order for _, in_order in answers), "the calls of one caller run in order"
            number += 100
    # A life that ends before its constructor has run is not counted here.
    assert 1 < counted(tmp_path) <= len(killed) + 1, "no life without a death"
    del actor
    all_is_well()


@pytest.mark.parametrize(("restarts", "retries"), [(0, 0), (3, 0), (3, 1), (2, -1), (-1, 2)])
def test_restarts_and_retries_are_counted_exactly(tmp_path: Path, restarts: int, retries: int) -> None:
    (tmp_path / "lives").mkdir()
    (tmp_path / "calls").mkdir()
    latch = Latch(tmp_path / "latch")
    actor = Ordered.options(max_restarts=restarts, max_task_retries=retries).remote(tmp_path / "lives")
    ref = actor.wait.remote(tmp_path / "calls", latch)
    deaths = 0
    while True:
        latch.wait_for_arrivals(deaths + 1)
        (pid,) = [pid for pid in latch.arrivals() if is_alive(pid)]
        kill(pid)
        deaths += 1
        if deaths > restarts >= 0 or deaths > retries >= 0:
            break
    with pytest.raises(exceptions.ActorError):
        get(ref)
    assert counted(tmp_path / "calls") == deaths
    if deaths > restarts >= 0:
        with pytest.raises(exceptions.ActorDiedError):
            get(actor.pid.remote())
        assert counted(tmp_path / "lives") == restarts + 1
    else:
        assert get(actor.pid.remote()) not in latch.arrivals()
        assert counted(tmp_path / "lives") == deaths + 1


def test_names_of_actors_that_die() -> None:
    once = Ordered.options(name="once").remote()
    again = Ordered.options(name="again", max_restarts=1).remote()
    lasting = Ordered.options(name="lasting", lifetime="detached", max_restarts=-1).remote()
    pids = get([actor.pid.remote() for actor in (once, again, lasting)])
    del lasting
    for pid in pids:
        kill(pid)
    with pytest.raises(exceptions.ActorDiedError):
        get(once.pid.remote())

    def is_free(name: str) -> bool:
        try:
            aktis.get_actor(name)
        except ValueError:
            return True
        return False

    wait_until(lambda: is_free("once"), what="the name of a dead actor to be free")
    successor = Ordered.options(name="once").remote()
    assert aktis.get_actor("once") == successor
    assert aktis.get_actor("again") == again

    def revived(name: str, before: int) -> int:
        while True:
            try:
                pid: int = get(aktis.get_actor(name).pid.remote())
            except (exceptions.ActorUnavailableError, exceptions.ActorDiedError):
                continue
            assert pid != before
            return pid

    second = revived("again", pids[1])
    revived("lasting", pids[2])
    kill(second)
    wait_until(lambda: is_free("again"), what="the name to be free after the last life")
    aktis.kill(aktis.get_actor("lasting"))
    wait_until(lambda: is_free("lasting"), what="a detached actor that is killed to be gone")


def test_actors_die_while_they_call_each_other() -> None:
    @aktis.remote(max_restarts=-1, max_task_retries=-1)
    class Link:
        def __init__(self, following: Any = None) -> None:
            self.following = following

        def call(self, number: int) -> int:
            if self.following is None:
                return number
            answer: int = aktis.get(self.following.call.remote(number + 1))
            return answer

    chain = Link.remote()
    for _ in range(3):
        chain = Link.remote(chain)
    assert get(chain.call.remote(0)) == 3

    def victims() -> list[int]:
        rows = state("actors")
        return [row["pid"] for row in rows if row["state"] == "ALIVE" and row.get("pid")]

    with killer(victims, seed=6, pause=0.04) as killed:
        while len(killed) < 15:
            assert get([chain.call.remote(number) for number in range(10)]) == list(range(3, 13))


# --- the driver -----------------------------------------------------------------------------------

DRIVER = """
    import os, subprocess, sys, time
    import aktis

    aktis.init(num_cpus=2, object_store_memory=100 << 20)

    @aktis.remote
    def busy():
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)

    @aktis.remote
    class Actor:
        def start(self):
            subprocess.Popen(["sleep", "600"])
            return os.getpid()
        def spin(self):
            while True:
                pass

    actors = [Actor.remote(), Actor.options(lifetime="detached", name="detached").remote()]
    print(aktis.get([actor.start.remote() for actor in actors]), flush=True)
    held = [aktis.put(bytes(10_000_000)) for _ in range(20)]
    refs = [busy.remote() for _ in range(2)] + [actors[0].spin.remote()]
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A program whose workers and actors are busy and have children: its process, and all pids under it."""
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "ready\n":
        assert line, "the program ended early"

    def family() -> list[int]:
        pids = children_of(process.pid)
        # The template, two workers, two actors; a child of each actor and two of each worker.
        return pids if len(pids) >= 11 else []

    pids = wait_until(family, what="all processes to be there")
    try:
        yield process, pids
    finally:
        process.kill()
        process.communicate()
        for pid in pids:
            if is_alive(pid):
                kill(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGQUIT])
def test_nothing_outlives_the_driver(driver: tuple[subprocess.Popen[str], list[int]], number: int) -> None:
    process, pids = driver
    process.send_signal(number)
    process.wait(PATIENCE)
    wait_until(lambda: not any(map(is_alive, pids)), 3, "all processes to end")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_workers_end_without_driver_and_template(
    driver: tuple[subprocess.Popen[str], list[int]], number: int
) -> None:
    """Nobody may be left to end what workers had started; the workers themselves are told by the kernel."""
    process, pids = driver
    template, *others = pids
    workers = [pid for pid in others if parent_of(pid) == template]
    # One more may be there that was started ahead of demand.
    assert len(workers) >= 4
    process.send_signal(signal.SIGSTOP)
    kill(template, number)
    process.kill()
    process.wait(PATIENCE)
    wait_until(lambda: not any(map(is_alive, [template, *workers])), 3, "all workers to end")


def test_what_a_killed_worker_has_started_ends_too() -> None:
    @aktis.remote(max_retries=0)
    def starts() -> list[int]:
        return [os.getpid(), subprocess.Popen(["sleep", "600"]).pid]

    @aktis.remote
    class Starter:
        def start(self) -> list[int]:
            return [os.getpid(), subprocess.Popen(["sleep", "600"]).pid]

    starter = Starter.remote()
    for pid, child in (get(starts.remote()), get(starter.start.remote())):
        assert is_alive(child)
        kill(pid)
        wait_until(lambda child=child: not is_alive(child), 3, "the child to end")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
