"""What tests share beside fixtures: waiting for a condition, latches between processes, remote functions,
programs to run.

Tests never sleep in order to synchronise. They wait for something that happens, with a deadline:

    from support import Latch, SignalActor, wait_until
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aktis

#: How long a test waits for something that should happen at once, on a machine that is very busy.
PATIENCE_SECONDS = 20.0


def wait_until(
    predicate: Callable[[], Any], timeout: float = PATIENCE_SECONDS, what: str = "", pause: float = 0.01
) -> Any:
    """What `predicate()` gives as soon as it is true; AssertionError if that takes longer than `timeout`."""
    deadline = time.monotonic() + timeout
    while True:
        if value := predicate():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or predicate}")
        time.sleep(pause)


class Latch:
    """Holds other processes back until it is opened. It is a folder, so it works whatever else is broken.

    A task calls `wait()`; the test calls `wait_for_arrivals(1)`, then `open()`. It can be pickled.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix="latch-"))
        self.folder.mkdir(parents=True, exist_ok=True)

    def arrive(self) -> None:
        """Says that the calling process has come this far."""
        handle, _ = tempfile.mkstemp(dir=self.folder, prefix=f"arrived-{os.getpid()}-")
        os.close(handle)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Arrives, and waits until somebody opens the latch."""
        self.arrive()
        wait_until(self.is_open, timeout, "the latch to open", pause=0.002)

    def open(self) -> None:
        (self.folder / "open").touch()

    def is_open(self) -> bool:
        return (self.folder / "open").exists()

    def arrivals(self) -> list[int]:
        """The pids of those who arrived, as often as they did."""
        return [int(path.name.split("-")[1]) for path in self.folder.glob("arrived-*")]

    def wait_for_arrivals(self, count: int, timeout: float = PATIENCE_SECONDS) -> list[int]:
        """The pids, once at least `count` have arrived."""
        wait_until(lambda: len(self.arrivals()) >= count, timeout, f"{count} arrivals", pause=0.002)
        return self.arrivals()


# --- remote functions and actors ------------------------------------------------------------------

#: How long `get` waits.
PATIENCE = 20


def get(refs: Any) -> Any:
    """The values of references that should come soon."""
    return aktis.get(refs, timeout=PATIENCE)


@aktis.remote
def identity(value: Any) -> Any:
    return value


@aktis.remote(max_retries=0)
def calls(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function, once."""
    return function(*args, **kwargs)


@aktis.remote
class Caller:
    """An actor that does what it is told."""

    def __init__(self, function: Callable[[], Any] | None = None) -> None:
        if function is not None:
            function()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def pid(self) -> int:
        return os.getpid()


def SignalActor(**options: Any) -> Any:
    """A new actor with `send(clear=False)`, `wait(should_wait=True)` and `cur_num_waiters()`."""

    class Signal:
        def __init__(self) -> None:
            import asyncio

            self.event = asyncio.Event()
            self.waiters = 0

        async def send(self, clear: bool = False) -> None:
            self.event.set()
            if clear:
                self.event.clear()

        async def wait(self, should_wait: bool = True) -> None:
            if should_wait:
                self.waiters += 1
                try:
                    await self.event.wait()
                finally:
                    self.waiters -= 1

        async def cur_num_waiters(self) -> int:
            return self.waiters

    return aktis.remote(**{"num_cpus": 0, **options})(Signal).remote()


# --- programs -------------------------------------------------------------------------------------


def run_program(
    arguments: list[str],
    folder: Path,
    timeout: float = 60,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS` in `folder`. With all that it started it is killed after `timeout` seconds,
    which is an AssertionError; so is, with `check`, an exit code that is not 0."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise AssertionError(f"not done within {timeout} s:\n{output}\n{errors}") from None
    if check and process.returncode != 0:
        raise AssertionError(f"exit code {process.returncode}:\n{output}\n{errors}")
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children_of(pid: int) -> list[int]:
    """The living processes that `pid` started, and those that these started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                parents[int(entry.name)] = int(parent)
    found: list[int] = []
    open_ends = [pid]
    while open_ends:
        parent_pid = open_ends.pop()
        children = [child for child, parent in parents.items() if parent == parent_pid]
        found += children
        open_ends += children
    return found


def command_of(pid: int) -> str:
    """The command line of a process, or its title if it has set one."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def open_files() -> int:
    """How many file descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))
