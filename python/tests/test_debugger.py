"""Breakpoints in tasks and actors, to which `aktis debug` connects."""

import bdb
import json
import os
import signal
import subprocess
from typing import Any

import pytest

import aktis
from aktis import _cli, _debugger
from aktis.util import rpdb
from support import PATIENCE_SECONDS, get, wait_until


def debug(*arguments: str, commands: str = "") -> subprocess.CompletedProcess[str]:
    line = [*_cli.command(), "debug", *arguments]
    return subprocess.run(line, input=commands, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def waiting(name: str) -> list[dict[str, Any]]:
    """The tasks of that name that wait, as the command lists them."""
    done = debug("--json")
    assert done.returncode == 0, done.stderr
    return [row for row in json.loads(done.stdout)["breakpoints"] if row["name"].endswith(name)]


def wait_for(name: str) -> dict[str, Any]:
    [row] = wait_until(lambda: waiting(name), what=f"{name} to wait")
    assert isinstance(row, dict)
    return row


@aktis.remote(max_retries=0)
def doubled(number: int) -> int:
    breakpoint()
    result = 2 * number
    return result


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_a_debugger_looks_into_a_task_and_changes_it(shared_session: None) -> None:
    ref = doubled.remote(21)
    row = wait_for("doubled")
    assert row["task"] == ref.task_id().hex() and ":" in row["place"]
    assert row["place"].startswith(__file__)
    listed = debug("--list")
    assert str(row["pid"]) in listed.stdout and "doubled" in listed.stdout
    done = debug(str(row["pid"]), commands="p number\nnumber = 50\nn\nn\np result\nc\n")
    assert done.returncode == 0, done.stderr
    assert "(aktis) 21\n" in done.stdout and "(aktis) 100\n" in done.stdout
    assert get(ref) == 100
    assert not waiting("doubled")


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_a_task_goes_on_when_its_debugger_leaves(shared_session: None) -> None:
    ref = doubled.remote(1)
    done = debug(str(wait_for("doubled")["pid"]), commands="b doubled\n")
    assert done.returncode == 0, done.stderr
    assert get(ref) == 2


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_breakpoints_of_a_debugger_end_with_the_task(shared_session: None) -> None:
    ref = doubled.remote(3)
    pid = wait_for("doubled")["pid"]
    # A line that is never reached again: the command ends all the same.
    done = debug(str(pid), commands="b doubled\nc\n")
    assert done.returncode == 0, done.stderr
    assert get(ref) == 6


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_quit_fails_the_task(shared_session: None) -> None:
    ref = doubled.remote(1)
    debug(str(wait_for("doubled")["pid"]), commands="q\n")
    with pytest.raises(bdb.BdbQuit):
        get(ref)


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_an_actor_stops_again_and_again(shared_session: None) -> None:
    @aktis.remote(num_cpus=0)
    class Counter:
        total = 0

        def add(self, number: int) -> int:
            rpdb.set_trace()
            self.total += number
            return self.total

    counter = Counter.remote()
    for number in (1, 2):
        ref = counter.add.remote(number)
        done = debug(str(wait_for("add")["pid"]), commands="p self.total\nc\n")
        assert f"(aktis) {number - 1}\n" in done.stdout
        assert get(ref) == 2 * number - 1


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_a_task_that_waits_for_a_debugger_is_cancelled(shared_session: None) -> None:
    ref = doubled.remote(1)
    wait_for("doubled")
    aktis.cancel(ref)
    with pytest.raises(aktis.exceptions.TaskCancelledError):
        get(ref)
    assert not waiting("doubled")


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_what_a_killed_task_left_is_removed(shared_session: None) -> None:
    ref = doubled.remote(1)
    pid = wait_for("doubled")["pid"]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(aktis.exceptions.WorkerCrashedError):
        get(ref)
    done = debug(str(pid))
    assert done.returncode == 1
    assert f"no task waits at a breakpoint in process {pid}\nhint: `aktis debug --list`" in done.stderr
    assert not [name for name in _files() if f"-{pid}-" in name]


@pytest.mark.one_node("debuggers connect on the machine of the task")
def test_a_variable_turns_breakpoints_off(shared_session: None) -> None:
    off = doubled.options(runtime_env={"env_vars": {"PYTHONBREAKPOINT": "0"}})
    assert get(off.remote(4)) == 8


def _files() -> list[str]:
    try:
        return os.listdir(_debugger.home())
    except FileNotFoundError:
        return []
