"""Bad input: what users give by mistake, and what their code does to its process. An error, never a hang."""

import dataclasses
import functools
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from aktis.util import debug
from support import PATIENCE, Caller, Latch, calls, get, identity, is_alive, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")


@pytest.fixture(autouse=True)
def all_is_well() -> Iterator[None]:
    """After each test work is still done, by all workers."""
    yield
    if not aktis.is_initialized():
        return
    try:
        assert aktis.get([identity.remote(number) for number in range(20)], timeout=10) == list(range(20))
    except BaseException:
        aktis.shutdown()  # the next test shall not suffer
        raise


# --- what cannot be pickled -----------------------------------------------------------------------


@dataclasses.dataclass
class Box:
    content: Any


UNPICKLABLE: list[Callable[[], Any]] = [
    threading.Lock,
    lambda: (number for number in range(3)),
    lambda: open(os.devnull, "wb"),  # noqa: SIM115
    socket.socket,
    lambda: sys._getframe(),
]


@pytest.mark.parametrize("make", UNPICKLABLE, ids=["lock", "generator", "file", "socket", "frame"])
def test_the_member_that_cannot_be_pickled_is_named(make: Any) -> None:
    culprit = make()
    actor = Caller.remote()
    get([actor.pid.remote(), identity.remote(1), calls.remote(int)])  # their code is known from here on
    before = debug.reference_counts()
    ref = aktis.put(bytes(1_000_000))
    box = Box({"the key": [ref, culprit]})
    for attempt in (
        lambda: identity.remote(box),
        lambda: calls.remote(len, extra=box),
        lambda: aktis.put(box),
        lambda: Caller.remote(box),
        lambda: actor.call.remote(box),
        lambda: actor.call.remote(lambda: box),
    ):
        with pytest.raises(TypeError, match="cannot be pickled") as caught:
            attempt()
        text = str(caught.value)
        assert "content" in text
        assert "the key" in text
        assert type(culprit).__name__ in text
        assert "hint:" in text
    # What was encoded before the error is let go of: the reference and nothing else is left.
    del caught
    assert debug.reference_counts().keys() - before.keys() == {ref.hex()}
    assert debug.reference_counts()[ref.hex()] == {"local": 1, "submitted": 0}
    if hasattr(culprit, "close"):
        culprit.close()


def test_results_that_cannot_be_pickled_name_the_member() -> None:
    def makes() -> Any:
        return Box({"the key": threading.Lock()})

    def makes_two() -> Any:
        return 1, makes()

    def generates() -> Any:
        yield 1
        yield makes()

    actor = Caller.remote()
    refs = [calls.remote(makes), actor.call.remote(makes), *calls.options(num_returns=2).remote(makes_two)]
    for ref in refs:
        with pytest.raises(TypeError, match=r"content.*the key"):
            get(ref)
    generator = aktis.remote(generates).remote()
    assert get(next(generator)) == 1
    with pytest.raises(TypeError, match=r"content.*the key"):
        get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)
    assert get(actor.pid.remote()) > 0


class ReducesBadly:
    """Does what it is told when it is pickled, or when it is unpickled."""

    def __init__(self, pickling: Any = None, unpickling: Any = None) -> None:
        self.pickling, self.unpickling = pickling, unpickling

    def __reduce__(self) -> Any:
        if self.pickling is not None:
            self.pickling()
        return (self.unpickling or int), ()


def raises_key_error() -> None:
    raise KeyError("from inside")


def raises_interrupt() -> None:
    raise KeyboardInterrupt


def recurses(depth: int = 0) -> int:
    return recurses(depth + 1) + 1


def test_values_that_raise_while_they_are_pickled() -> None:
    with pytest.raises(TypeError, match="from inside"):
        identity.remote(ReducesBadly(pickling=raises_key_error))
    with pytest.raises(TypeError, match="nested too deeply"):
        identity.remote(ReducesBadly(pickling=recurses))
    with pytest.raises(KeyboardInterrupt):
        identity.remote(ReducesBadly(pickling=raises_interrupt))
    with pytest.raises(TypeError, match="from inside"):
        get(calls.remote(lambda: ReducesBadly(pickling=raises_key_error)))
    with pytest.raises(exceptions.TaskCancelledError):
        get(calls.remote(lambda: ReducesBadly(pickling=raises_interrupt)))


def test_values_that_raise_while_they_are_unpickled() -> None:
    for wrong, kind in ((raises_key_error, KeyError), (recurses, RecursionError)):
        with pytest.raises(kind):
            get(identity.remote(ReducesBadly(unpickling=wrong)))
        with pytest.raises(kind):
            get(calls.remote(lambda wrong=wrong: ReducesBadly(unpickling=wrong)))
        with pytest.raises(exceptions.ActorDiedError, match=kind.__name__):
            get(Caller.remote(ReducesBadly(unpickling=wrong)).pid.remote())
        ref = aktis.put(ReducesBadly(unpickling=wrong))
        for _ in range(2):
            with pytest.raises(kind):
                get(ref)
        with pytest.raises(kind):
            get(identity.remote(ref))
        actor = Caller.remote()
        with pytest.raises(kind):
            get(actor.call.remote(ReducesBadly(unpickling=wrong)))
        assert get(actor.pid.remote()) > 0


def test_values_that_end_the_worker_while_they_are_unpickled() -> None:
    def leaves() -> None:
        os._exit(9)

    with pytest.raises(exceptions.WorkerCrashedError, match="code 9"):
        get(calls.remote(ReducesBadly(unpickling=leaves)))
    with pytest.raises(exceptions.ActorDiedError, match="code 9"):
        get(Caller.remote(ReducesBadly(unpickling=leaves)).pid.remote())


def test_exceptions_that_cannot_travel() -> None:
    class Stubborn(Exception):
        def __reduce__(self) -> Any:
            raise RuntimeError("no")

    class OnlyThere(Exception):
        def __reduce__(self) -> Any:
            return only_in, (os.getpid(),)

    def only_in(pid: int) -> Exception:
        if os.getpid() != pid:
            raise RuntimeError("elsewhere it cannot be made")
        return OnlyThere("there")

    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        __repr__ = __str__

    class Exits(Exception):
        def __reduce__(self) -> Any:
            return sys.exit, (3,)

    def raises(kind: Any) -> None:
        raise kind("original text")

    for kind in (Stubborn, OnlyThere, Exits):
        with pytest.raises(exceptions.TaskError, match=f"{kind.__name__}: original text"):
            get(calls.remote(raises, kind))
    with pytest.raises(exceptions.TaskError):
        get(calls.remote(raises, Silent))
    chained = calls.remote(lambda: get(calls.remote(raises, Stubborn)))
    with pytest.raises(exceptions.TaskError, match="Stubborn: original text"):
        get(chained)
    actor = Caller.remote()
    with pytest.raises(exceptions.TaskError, match="Stubborn: original text"):
        get(actor.call.remote(raises, Stubborn))


class Detailed(Exception):
    def __init__(self, code: int, data: Any) -> None:
        super().__init__(f"failed with {code}")
        self.code, self.data = code, data


def test_exceptions_with_much_to_say() -> None:
    """What is large is left out; the class and the rest arrive."""

    def raises(error: Callable[[], Exception]) -> None:
        raise error()

    with pytest.raises(ValueError, match="bytes left out") as caught:
        get(calls.remote(raises, lambda: ValueError("begin" + "x" * 5_000_000 + "end", 7)))
    assert caught.value.args[0].startswith("beginx")
    assert caught.value.args[0].endswith("xend")
    assert caught.value.args[1] == 7
    with pytest.raises(Detailed, match="failed with 9") as detailed:
        get(calls.remote(raises, lambda: Detailed(9, list(range(100_000)))))
    assert detailed.value.code == 9
    assert "list" in detailed.value.data
    assert "too large" in detailed.value.data
    with pytest.raises(KeyError) as small:
        get(calls.remote(raises, lambda: KeyError("x" * 20_000)))
    assert small.value.args == ("x" * 20_000,)
    with pytest.raises(exceptions.TaskError, match="ExceptionGroup"):
        get(
            calls.remote(raises, lambda: ExceptionGroup("many", [ValueError(f"{n:1000}") for n in range(99)]))
        )

    def raises_chain() -> None:
        error: Exception = ValueError(0)
        for number in range(2000):
            try:
                raise KeyError(number) from error
            except KeyError as caught:
                error = caught
        raise error

    with pytest.raises(KeyError):
        get(calls.remote(raises_chain))


def test_exceptions_with_text_that_is_no_text() -> None:
    def raises(text: str) -> None:
        raise ValueError(text)

    for text in ("\udc80 alone", "\x00 and \x1b[31m", "\N{SNOWMAN}" * 1000):
        with pytest.raises(ValueError) as caught:
            get(calls.remote(raises, text))
        assert caught.value.args == (text,)
        assert isinstance(caught.value, exceptions.TaskError)


def test_structures_that_are_too_deep() -> None:
    def nested(depth: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(depth):
            value = [value]
        return value

    with pytest.raises(TypeError, match="nested too deeply"):
        identity.remote(nested(100_000))
    with pytest.raises(TypeError, match="nested too deeply"):
        get(calls.remote(nested, 100_000))
    with pytest.raises(RecursionError):
        get(calls.remote(recurses))
    actor = Caller.remote()
    with pytest.raises(RecursionError):
        get(actor.call.remote(recurses))
    with pytest.raises(exceptions.ActorDiedError, match="RecursionError"):
        get(Caller.remote(recurses).pid.remote())


# --- how processes end ----------------------------------------------------------------------------


def kills_itself(number: int) -> None:
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)
    time.sleep(PATIENCE)


ENDS: list[tuple[Callable[[], Any], str]] = [
    (functools.partial(kills_itself, signal.SIGSEGV), "SIGSEGV"),
    (functools.partial(kills_itself, signal.SIGBUS), "SIGBUS"),
    (functools.partial(kills_itself, signal.SIGILL), "SIGILL"),
    (functools.partial(kills_itself, signal.SIGTERM), "SIGTERM"),
    (functools.partial(kills_itself, signal.SIGKILL), "SIGKILL"),
    (os.abort, "SIGABRT"),
    (functools.partial(os._exit, 0), "code 0"),
    (functools.partial(os._exit, 255), "code 255"),
]
END_NAMES = ["segv", "bus", "ill", "term", "kill", "abort", "exit0", "exit255"]


@pytest.mark.parametrize(("end", "said"), ENDS, ids=END_NAMES)
def test_the_end_of_a_process_is_named(end: Any, said: str) -> None:
    with pytest.raises(exceptions.WorkerCrashedError, match=said):
        get(calls.remote(end))
    with pytest.raises(exceptions.ActorDiedError, match=said):
        get(Caller.remote().call.remote(end))
    with pytest.raises(exceptions.ActorDiedError, match=said):
        get(Caller.remote(end).pid.remote())


def test_a_task_that_is_killed_reads_as_such() -> None:
    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        get(calls.remote(functools.partial(kills_itself, signal.SIGKILL)))
    assert "SIGKILL" in str(caught.value)
    assert "memory" in str(caught.value), "it says who kills like this"
    assert caught.value.signal == signal.SIGKILL


def test_memory_that_is_not_there() -> None:
    def blows_up() -> int:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), hard))
        try:
            return len(bytearray(1 << 30))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

    with pytest.raises(MemoryError):
        get(calls.remote(blows_up))
    with pytest.raises(MemoryError):
        get(calls.remote(bytes, 1 << 60))


@pytest.mark.parametrize("code", [0, 3, None, "words"])
def test_sys_exit(code: Any) -> None:
    number = {None: 0, "words": 1}.get(code, code)
    with pytest.raises(exceptions.WorkerCrashedError, match=f"code {number}") as caught:
        get(calls.remote(sys.exit, code))
    assert caught.value.exit_code == number
    with pytest.raises(exceptions.AktisError):
        get(Caller.remote().call.remote(sys.exit, code))
    with pytest.raises(exceptions.ActorDiedError):
        get(Caller.remote(functools.partial(sys.exit, code)).pid.remote())


def test_threads_that_end_badly() -> None:
    def in_a_thread(function: Callable[[], Any]) -> str:
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        return "went on"

    assert get(calls.remote(in_a_thread, sys.exit)) == "went on"
    assert get(calls.remote(in_a_thread, lambda: 1 / 0)) == "went on"
    with pytest.raises(exceptions.WorkerCrashedError, match="code 5"):
        get(calls.remote(in_a_thread, functools.partial(os._exit, 5)))


def test_threads_that_outlive_their_task(tmp_path: Path) -> None:
    def leaves_threads(latch: Latch, path: Path) -> int:
        def later() -> None:
            latch.wait()
            # The task is long over; what its thread does is done all the same.
            value = aktis.get(identity.remote(aktis.put(41)))
            path.write_text(str(value + 1))

        for daemon in (True, False):
            threading.Thread(target=time.sleep, args=(600,), daemon=daemon).start()
        threading.Thread(target=later, daemon=True).start()
        return os.getpid()

    latch = Latch(tmp_path / "latch")
    pid = get(calls.remote(leaves_threads, latch, tmp_path / "result"))
    latch.wait_for_arrivals(1)
    latch.open()
    wait_until(lambda: (tmp_path / "result").exists() and (tmp_path / "result").read_text() == "42")
    aktis.shutdown()
    wait_until(lambda: not is_alive(pid), 5, "a worker with threads that never end to end")


# --- other processes ------------------------------------------------------------------------------


def test_the_child_of_a_task_may_come_back_from_it(run_script: Any) -> None:
    """`os.fork()` in a task, and both go on: the child must not answer for its parent, nor take work."""
    done = run_script("""
        import os, time
        import aktis
        aktis.init(num_cpus=2)
        @aktis.remote
        def identity(value):
            return value
        @aktis.remote(max_retries=0)
        def forks(how):
            pid = os.fork()
            open(f"ran-{pid}", "w").close()
            if pid == 0 and how == "raise":
                raise ValueError
            return pid
        for how in ("return", "raise", "return", "raise"):
            pid = aktis.get(forks.remote(how), timeout=10)
            assert pid > 0
            while not os.path.exists("ran-0"):
                time.sleep(0.002)
            os.unlink("ran-0")
            assert aktis.get([identity.remote(n) for n in range(100)], timeout=10) == list(range(100))
            deadline = time.monotonic() + 10
            while open(f"/proc/{pid}/stat").read().split()[2] not in "ZX":
                assert time.monotonic() < deadline, "the child lives"
                time.sleep(0.01)
        print("well")
    """)
    assert done.stdout.endswith("well\n"), done.stdout + done.stderr


def test_children_that_leave_in_all_ways() -> None:
    def forks(leave: Callable[[], Any]) -> int:
        pid = os.fork()
        if pid == 0:
            leave()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert get(calls.remote(forks, functools.partial(os._exit, 3))) == 3
    assert get(calls.remote(forks, os.abort)) == -signal.SIGABRT
    actor = Caller.remote()
    assert get(actor.call.remote(forks, functools.partial(os._exit, 4))) == 4
    assert get(actor.pid.remote()) > 0


def test_a_child_cannot_use_the_session_of_its_task() -> None:
    def forks(ref: list[Any]) -> bytes:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                aktis.get(identity.remote(ref[0]), timeout=5)
                os.write(write, b"no error")
            except BaseException as error:
                os.write(write, f"{type(error).__name__}: {error}".encode())
            os._exit(0)
        os.close(write)
        said = os.read(read, 10_000)
        os.waitpid(pid, 0)
        return said

    said = get(calls.remote(forks, [aktis.put(1)])).decode()
    assert "fork" in said


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_inside_a_task(method: str) -> None:
    def uses(method: str) -> list[int]:
        import multiprocessing

        with multiprocessing.get_context(method).Pool(2) as pool:
            return pool.map(math.factorial, range(5))

    assert get(calls.remote(uses, method)) == [1, 1, 2, 6, 24]
    assert get(Caller.remote().call.remote(uses, method)) == [1, 1, 2, 6, 24]


def test_subprocesses_of_a_task() -> None:
    def runs() -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-c", "import sys; print(sys.stdin.read() + '!'); sys.exit(3)"],
            input="hello",
            capture_output=True,
            text=True,
            check=False,
        )
        return (
            done.returncode,
            done.stdout.strip(),
            subprocess.check_output(["echo", "twice"], text=True).strip(),
        )

    assert get(calls.remote(runs)) == (3, "hello!", "twice")

    def reads_stdin() -> str:
        return subprocess.run(["cat"], capture_output=True, text=True, check=True, timeout=10).stdout

    assert get(calls.remote(reads_stdin)) == "", "the standard input of a worker is empty"
    assert get(calls.remote(lambda: sys.stdin.read())) == ""


def test_a_task_that_waits_for_any_child() -> None:
    def waits() -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.wait()[1])

    assert get(Caller.remote().call.remote(waits)) == 7


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH])
def test_signals_that_workers_ignore(number: int, latch: Latch) -> None:
    """What a terminal sends to all processes of a program is the driver's business alone."""

    def waits(latch: Latch) -> str:
        latch.wait()
        return "undisturbed"

    ref = calls.remote(waits, latch)
    (busy,) = latch.wait_for_arrivals(1)
    actor = Caller.remote()
    idle = get(actor.pid.remote())
    os.kill(busy, number)
    os.kill(idle, number)
    latch.open()
    assert get(ref) == "undisturbed"
    assert get(actor.pid.remote()) == idle


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_that_end_workers_are_named(number: signal.Signals, latch: Latch) -> None:
    def waits(latch: Latch) -> None:
        latch.wait()

    ref = calls.remote(waits, latch)
    (pid,) = latch.wait_for_arrivals(1)
    os.kill(pid, number)
    with pytest.raises(exceptions.WorkerCrashedError, match=number.name):
        get(ref)


def test_signal_handlers_of_the_driver_run_while_it_waits(latch: Latch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))

    def waits(latch: Latch) -> str:
        latch.wait()
        return "done"

    try:
        ref = calls.remote(waits, latch)
        latch.wait_for_arrivals(1)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        opener = threading.Thread(target=lambda: (wait_until(lambda: len(seen) >= 3), latch.open()))
        opener.start()
        assert aktis.get(ref, timeout=PATIENCE) == "done", "a handler that returns changes nothing"
        opener.join()
        assert len(seen) >= 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("call", ["get", "wait", "next", "remote"])
def test_handlers_that_raise_end_the_wait(call: str, latch: Latch) -> None:
    class Alarm(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Alarm

    def generates(latch: Latch) -> Any:
        latch.wait()
        yield 1

    slow = aktis.remote(generates).remote(latch)
    ref = calls.remote(lambda latch: latch.wait(), latch)
    latch.wait_for_arrivals(2)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm):
            if call == "get":
                aktis.get([ref, ref])
            elif call == "wait":
                aktis.wait([ref])
            elif call == "next":
                next(slow)
            else:
                while True:
                    identity.remote(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    latch.open()
    assert get(ref) is None
    assert [get(item) for item in slow] == [1]


def test_a_driver_with_odd_signals(run_script: Any) -> None:
    """Signals that are blocked or ignored in the driver end and interrupt workers all the same."""
    done = run_script("""
        import os, signal, sys, time
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1})
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        import aktis
        aktis.init(num_cpus=2)
        @aktis.remote(max_retries=0)
        def sleeps(path):
            open(path, "w").close()
            for _ in range(1000):
                time.sleep(0.02)
        @aktis.remote(max_retries=0)
        def dies(number):
            os.kill(os.getpid(), number)
            time.sleep(20)
        ref = sleeps.remote("started")
        while not os.path.exists("started"):
            time.sleep(0.002)
        aktis.cancel(ref)
        try:
            aktis.get(ref, timeout=20)
        except aktis.exceptions.TaskCancelledError:
            print("cancelled")
        for number in (signal.SIGKILL, signal.SIGTERM):
            try:
                aktis.get(dies.remote(number), timeout=20)
            except aktis.exceptions.WorkerCrashedError as error:
                print(number.name in str(error))
        print("end")
    """)
    assert done.stdout.split() == ["cancelled", "True", "True", "end"], done.stdout + done.stderr
