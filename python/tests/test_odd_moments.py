"""Odd moments: streams and directories that are gone, sessions that end while all kinds of things go on."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import PATIENCE, Caller, Latch, calls, get, identity

pytestmark = pytest.mark.usefixtures("shared_session")


# --- what a process stands on ---------------------------------------------------------------------


def test_a_directory_that_is_gone(tmp_path: Path, run_script: Any) -> None:
    done = run_script("""
        import os, shutil
        import aktis
        @aktis.remote
        def identity(value): return value
        @aktis.remote
        def loses():
            os.mkdir("lost")
            os.chdir("lost")
            os.rmdir(os.getcwd())
            return "lost"
        os.mkdir("gone")
        os.chdir("gone")
        for _ in range(2):
            aktis.init(num_cpus=2)
            there = loses.options(runtime_env={"working_dir": os.path.dirname(__file__)})
            print(aktis.get(there.remote(), timeout=20))
            print(aktis.get([identity.remote(n) for n in range(10)], timeout=20) == list(range(10)))
            if os.path.isdir("../gone"):
                os.rmdir("../gone")
            print(aktis.get(identity.remote(1), timeout=20))
            @aktis.remote
            class Actor:
                def method(self): return "method"
            print(aktis.get(Actor.remote().method.remote(), timeout=20))
            aktis.shutdown()
    """)
    assert done.stdout.splitlines() == ["lost", "True", "1", "method"] * 2, done.stdout + done.stderr


def closes(name: str) -> str:
    stream = getattr(sys, name)
    print("said before", file=stream if name != "stdin" else sys.stderr)
    stream.close()
    return name


def closes_descriptor(number: int) -> int:
    os.close(number)
    return number


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_streams_that_are_closed(name: str, session: Any) -> None:
    assert get(calls.remote(closes, name)) == name
    assert get(Caller.remote().call.remote(closes, name)) == name
    assert get([identity.remote(number) for number in range(20)]) == list(range(20))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_descriptors_that_are_closed(number: int, session: Any) -> None:
    assert get(calls.remote(closes_descriptor, number)) == number
    actor = Caller.remote()
    assert get(actor.call.remote(closes_descriptor, number)) == number
    assert get(actor.call.remote(int)) == 0
    assert get([identity.remote(number) for number in range(20)]) == list(range(20))


def test_a_program_without_standard_streams(tmp_path: Path, run_script: Any) -> None:
    done = run_script("""
        import os, sys
        out = os.dup(1)
        for number in (0, 1, 2):
            os.close(number)
        sys.stdin = sys.stdout = sys.stderr = None
        import aktis
        aktis.init(num_cpus=2)
        @aktis.remote
        def says():
            print("heard by nobody", flush=True)
            return "well"
        os.write(out, aktis.get(says.remote(), timeout=20).encode())
        aktis.shutdown()
        os._exit(0)
    """)
    assert done.stdout.endswith("well")


def test_limits_of_the_process() -> None:
    def has_few_descriptors() -> str:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        try:
            # With no descriptor left, small and large values still come and go.
            return str(len(aktis.get(identity.remote(bytes(300_000)), timeout=10)))
        finally:
            for descriptor in held:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert get(calls.remote(has_few_descriptors)) == "300000"


# --- sessions that end at odd moments -------------------------------------------------------------


@pytest.mark.parametrize("call", ["get", "get_list", "wait", "next", "await", "future"])
def test_the_end_of_the_session_ends_every_wait(call: str, latch: Latch, session: Any) -> None:
    @aktis.remote
    def generates(latch: Latch) -> Any:
        latch.wait()
        yield 1

    slow = generates.remote(latch) if call == "next" else calls.remote(lambda latch: latch.wait(), latch)
    latch.wait_for_arrivals(1)
    waiting = threading.Event()
    outcome: list[Any] = []

    async def awaits() -> Any:
        return await slow

    def waits() -> None:
        import asyncio

        ways: dict[str, Callable[[], Any]] = {
            "get": lambda: aktis.get(slow),
            "get_list": lambda: aktis.get([slow, slow]),
            "wait": lambda: aktis.wait([slow]),
            "next": lambda: aktis.get(next(slow)),
            "await": lambda: asyncio.run(awaits()),
            "future": lambda: slow.future().result(),
        }
        waiting.set()
        try:
            outcome.append(ways[call]())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=waits, daemon=True)
    thread.start()
    waiting.wait(PATIENCE)
    aktis.shutdown()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it still waits"
    (found,) = outcome
    if call == "wait":
        assert isinstance(found, exceptions.AktisError) or found == ([slow], [])
    else:
        assert isinstance(found, (exceptions.AktisError, StopIteration))


def test_several_threads_end_the_session(session: Any) -> None:
    threads = [threading.Thread(target=aktis.shutdown) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not aktis.is_initialized()


def test_the_session_ends_while_work_is_submitted(session: Any) -> None:
    @aktis.remote
    class Actor:
        def method(self, value: Any) -> Any:
            return value

    actor = Actor.remote()
    problems: list[BaseException] = []
    started = threading.Barrier(5)
    node = session["node_id"]

    def submits(call: Callable[[], Any]) -> None:
        started.wait(PATIENCE)
        try:
            while aktis.is_initialized() and aktis.get_runtime_context().get_node_id() == node:
                aktis.get([call() for _ in range(10)], timeout=PATIENCE)
        except exceptions.AktisError:
            pass
        except BaseException as error:
            problems.append(error)

    ways = [
        lambda: identity.remote(1),
        lambda: actor.method.remote(1),
        lambda: aktis.put(bytes(200_000)),
        lambda: calls.remote(lambda: aktis.get(identity.remote(1))),
    ]
    threads = [threading.Thread(target=submits, args=(way,), daemon=True) for way in ways]
    for thread in threads:
        thread.start()
    started.wait(PATIENCE)
    get([identity.remote(number) for number in range(100)])
    aktis.shutdown()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a thread still waits"
    assert problems == []
    if aktis.is_initialized():
        aktis.shutdown()  # a thread that came late has started another one


def test_shutdown_from_a_callback(session: Any) -> None:
    done = threading.Event()

    def ends(_: Any) -> None:
        aktis.shutdown()
        done.set()

    identity.remote(1).future().add_done_callback(ends)
    assert done.wait(PATIENCE)
    assert not aktis.is_initialized()


def test_shutdown_in_a_worker() -> None:
    """A worker cannot end the session of its driver."""

    def ends() -> Any:
        aktis.shutdown()
        return aktis.get(identity.remote(3))

    assert get(calls.remote(ends)) == 3
    assert get(Caller.remote().call.remote(ends)) == 3
    assert aktis.is_initialized()


@pytest.mark.parametrize(
    "where",
    [
        "atexit.register(lambda: print(aktis.get(f.remote())))",
        "threading.Thread(target=lambda: (time.sleep(0.05), print(aktis.get(f.remote())))).start()",
        "threading.Thread(target=lambda: [f.remote() for _ in iter(int, 1)], daemon=True).start(); print(1)",
        (
            "start = lambda: [aktis.get(f.remote()) for _ in iter(int, 1)]; sys.setswitchinterval(1e-5); "
            "[threading.Thread(target=start, daemon=True).start() for _ in range(6)]; print(1)"
        ),
        "weakref.finalize(f, aktis.shutdown); print(1)",
        "refs.append(refs); refs.append(Actor.remote()); refs.append(aktis.put(bytes(10**6))); print(1)",
        "view = memoryview(aktis.get(aktis.put(bytearray(10**6)))); print(1)",
        "pending = aktis.get; refs += [slow.remote() for _ in range(10)]; print(1)",
        "f.remote().future().add_done_callback(lambda _: aktis.shutdown()); print(1)",
        "sys.setswitchinterval(1e-6); refs += [f.remote() for _ in range(2000)]; print(1)",
    ],
    ids=["atexit", "thread", "daemon", "daemons", "finalize", "cycle", "view", "pending", "callback", "many"],
)
def test_programs_end(run_script: Any, where: str) -> None:
    """Whatever is still going on when the program ends, it ends, in time, without a crash."""
    done = run_script(
        f"""
        import atexit, gc, os, sys, threading, time, weakref
        import aktis
        aktis.init(num_cpus=1)
        @aktis.remote
        def f(): return 1
        @aktis.remote
        def slow(): time.sleep(600)
        @aktis.remote
        class Actor:
            def method(self): return 1
        assert aktis.get(f.remote()) == 1
        refs = []
        {where}
        """,
        timeout=20,
    )
    assert done.stdout == "1\n", done.stderr
    assert "Fatal" not in done.stderr
    assert "panicked" not in done.stderr


def test_processes_that_fork_without_exec(run_script: Any) -> None:
    """Children of the driver, made by fork, leave its session alone, whatever way they end."""
    done = run_script("""
        import multiprocessing, os, sys
        import aktis
        aktis.init(num_cpus=2)
        @aktis.remote
        def f(x): return x + 1
        def child(x): return x * 2
        ref = aktis.put(5)
        def main():
            assert aktis.get(f.remote(1)) == 2
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(child, [1, 2, 3]) == [2, 4, 6]
            pid = os.fork()
            if pid == 0:
                sys.exit(0)  # runs atexit, and with it shutdown
            assert os.waitpid(pid, 0)[1] == 0
            pid = os.fork()
            if pid == 0:
                aktis.shutdown()
                aktis.init(num_cpus=1)  # a session of its own
                os._exit(aktis.get(f.remote(41)))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
            assert aktis.get(f.remote(ref), timeout=20) == 6
            print("well", flush=True)
        main()
    """)
    assert done.stdout == "well\n", done.stdout + done.stderr


def test_no_session_begins_while_the_program_ends(run_script: Any) -> None:
    done = run_script("""
        import atexit
        def late():
            for call in (lambda: f.remote(), lambda: aktis.put(1), lambda: aktis.get(ref, timeout=5)):
                try:
                    print(call())
                except aktis.exceptions.AktisError as error:
                    print(type(error).__name__)
        atexit.register(late)
        import aktis
        @aktis.remote
        def f(): return 1
        ref = f.remote()
        print(aktis.get(ref))
    """)
    assert done.stdout.split() == ["1"] + ["SessionClosedError"] * 3, done.stdout + done.stderr
