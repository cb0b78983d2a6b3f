"""Nodes and control processes that are stopped, and say nothing: a program that waits for one can be
interrupted, gives up after a while, and ends quickly."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aktis.cluster_utils import Cluster
from support import children_of, command_of

# Beyond what Ctrl-C may take, there is the start of Python and the load of the machine.
INTERRUPTED_SECONDS = 1
PATIENCE = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 1}) as cluster:
        yield cluster


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def control_of(cluster: Cluster) -> int:
    return int(cluster.head_node.process.pid)


def daemon_of(cluster: Cluster) -> int:
    found = [pid for pid in children_of(control_of(cluster)) if "start" in command_of(pid)]
    return found[0]


def start(cluster: Cluster, before: str, after: str) -> "subprocess.Popen[str]":
    """A driver that says when it begins to wait, and then waits."""
    program = f"""
import sys, time
import aktis
from aktis.util import debug
address = {cluster.address!r}
{before}
print("waits", flush=True)
sys.stdin.readline()
{after}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "waits\n"
    return process


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


ATTACHED = "aktis.init(address)"
WAITS = [
    pytest.param(daemon_of, "", "aktis.init(address)", id="init-daemon"),
    pytest.param(control_of, "", "aktis.init(address)", id="init-control"),
    pytest.param(control_of, ATTACHED, "debug.kv_put('key', b'value')", id="kv_put-control"),
    pytest.param(control_of, ATTACHED, "aktis.get_actor('nobody', namespace='x')", id="get_actor-control"),
]


@pytest.mark.parametrize(("victim", "before", "after"), WAITS)
def test_ctrl_c_ends_the_wait_for_a_silent_process(
    cluster: Cluster, victim: Any, before: str, after: str
) -> None:
    process = start(cluster, before, after)
    with stopped(victim(cluster)):
        go_on(process)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        took = time.monotonic() - began
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
    assert took < INTERRUPTED_SECONDS + 1, f"{took} s after Ctrl-C"


@pytest.mark.parametrize(
    ("victim", "says"), [(daemon_of, "has not answered"), (control_of, "has not answered")]
)
def test_init_gives_up_on_a_silent_process(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, victim: Any, says: str
) -> None:
    monkeypatch.setenv("AKTIS_ATTACH_TIMEOUT", "0.5")
    process = start(cluster, "", "aktis.init(address)")
    with stopped(victim(cluster)):
        go_on(process)
        began = time.monotonic()
        _, errors = process.communicate(timeout=PATIENCE)
        took = time.monotonic() - began
    assert "ConnectionError" in errors and says in errors and "hint:" in errors
    assert took < 3, f"{took} s"


@pytest.mark.parametrize("victim", [daemon_of, control_of])
def test_a_program_ends_quickly_beside_a_silent_process(cluster: Cluster, victim: Any) -> None:
    process = start(cluster, ATTACHED, "")
    with stopped(victim(cluster)):
        go_on(process)
        began = time.monotonic()
        assert process.wait(PATIENCE) == 0
        took = time.monotonic() - began
    assert took < 3, f"{took} s"
