"""Fixtures: sessions, programs of their own, and a search for what a module of tests has left behind.

Most tests use `shared_session`, which a module's tests share. Those that shut down, count resources or kill
what others need use `session`. Those that call `aktis.init` themselves use `no_session`.

With `--nodes`, the first two are drivers on a node without CPUs, and the CPUs are on another node of its
cluster: what holds on one node has to hold between two. Other tests are left out then.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import support
from support import Latch, children_of, command_of, run_program, wait_until

#: In the environment of all that the tests start, so that orphans can be found too.
RUN_VARIABLE = "AKTIS_TEST_RUN"
RUN = uuid.uuid4().hex
os.environ[RUN_VARIABLE] = RUN

#: After `timeout` a test fails. If even that does not get through to it, the whole run ends after this time.
HOPELESS_SECONDS = 240

CPUS = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nodes", action="store_true", help="run the tests' work on another node than their driver's"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_node(reason): what the test is about is the same node")
    Nodes.wanted = config.getoption("--nodes")
    # Shells ignore these in what they start in the background, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_unconfigure() -> None:
    Nodes.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if Nodes.wanted:
        leave_out_one_node(config, items)
    # By value, so that workers need not import the module, and pytest with it. `BY_REFERENCE = True` in a
    # module says otherwise.
    cloudpickle.register_pickle_by_value(support)
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        if not getattr(module, "BY_REFERENCE", False):
            cloudpickle.register_pickle_by_value(module)


def leave_out_one_node(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests which start nodes themselves, or need none, and skips those that say why."""
    attached = {"session", "shared_session"}
    others = [item for item in items if attached.isdisjoint(getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
    for item in items:
        for mark in item.iter_markers("one_node"):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[Any]:
    faulthandler.dump_traceback_later(HOPELESS_SECONDS, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


# --- sessions -------------------------------------------------------------------------------------


class Nodes:
    """The cluster of a run with `--nodes`: the driver's node, and the one that has the CPUs."""

    wanted = False
    cluster: Any = None

    @classmethod
    def address(cls) -> str:
        from aktis.cluster_utils import Cluster

        if cls.cluster is None:
            cls.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
            cls.cluster.add_node(num_cpus=CPUS)
        return str(cls.cluster.address)

    @classmethod
    def stop(cls) -> None:
        if cls.cluster is not None:
            cls.cluster.shutdown()
            cls.cluster = None


def start_session() -> Any:
    import aktis

    return aktis.init(Nodes.address()) if Nodes.wanted else aktis.init(num_cpus=CPUS)


def end_session() -> None:
    import aktis

    if aktis.is_initialized():
        aktis.shutdown()


@pytest.fixture
def no_session() -> Iterator[None]:
    """There is no session before the test, and none after it."""
    end_session()
    yield
    end_session()


@pytest.fixture
def session(no_session: None) -> Any:
    """A new session with two CPUs, for this test alone."""
    return start_session()


class Shared:
    """The session that tests of one module share; the first starts it, and whoever comes after its end."""

    context: Any = None


@pytest.fixture
def shared_session() -> Any:
    """A session with two CPUs that the module's tests share."""
    import aktis

    # A test with a session of its own may have taken the place of ours.
    if not aktis.is_initialized() or Shared.context is None:
        end_session()
        Shared.context = start_session()
    return Shared.context


def session_with(*modules: str) -> Iterator[None]:
    """A session for a whole module, whose workers are forked with these: each of them starts in a moment."""
    import aktis

    end_session()
    aktis.init(num_cpus=CPUS, runtime_env={"preload": list(modules)})
    yield
    end_session()


@pytest.fixture(scope="module")
def torch_session() -> Iterator[None]:
    """Workers have torch, and what its optimizers load at their first use."""
    yield from session_with("torch", "torch._dynamo")


@pytest.fixture(scope="module")
def policy_session() -> Iterator[None]:
    """Workers have what policies of torch in environments of Gymnasium need."""
    yield from session_with("torch", "gymnasium")


@pytest.fixture(autouse=True)
def forget_ended_session() -> Iterator[None]:
    yield
    aktis = sys.modules.get("aktis")
    if aktis is not None and not aktis.is_initialized():
        Shared.context = None


# --- programs and latches -------------------------------------------------------------------------


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., Any]:
    """`run_script(text, *arguments, timeout=60, environment=None, check=True)` runs a program in a process of
    its own, and gives its `stdout`, `stderr` and `returncode`."""

    def run(text: str, *arguments: str, **options: Any) -> Any:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(text))
        return run_program([str(script), *arguments], tmp_path, **options)

    return run


@pytest.fixture
def latch(tmp_path: Path) -> Iterator[Latch]:
    """A latch between processes; it is opened at the end, so that nobody waits for ever."""
    latch = Latch(tmp_path / "latch")
    yield latch
    latch.open()


# --- what is left behind --------------------------------------------------------------------------


def processes_of_this_run() -> set[int]:
    """Descendants of this process, and orphans that carry its mark."""
    found = set(children_of(os.getpid()))
    mark = f"{RUN_VARIABLE}={RUN}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return {pid for pid in found if support.is_alive(pid) and not is_kept(pid)}


def is_kept(pid: int) -> bool:
    """Whether a node keeps the process for a while, in case that its program comes again."""
    return Nodes.wanted and "_template.main" in command_of(pid)


def shared_files() -> set[str]:
    """Files of ours in shared memory and in the folder for temporary files."""
    from aktis import _running

    # What programs that were killed have announced goes when somebody looks.
    _running.find("auto")
    folders = [Path("/dev/shm"), Path(tempfile.gettempdir())]
    return {str(path) for folder in folders if folder.is_dir() for path in folder.glob("aktis*")}


def lasting_threads() -> set[str]:
    """Threads that would keep the interpreter from ending."""
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    return {thread.name for thread in threads if thread is not threading.main_thread()}


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the last test of a module if processes, threads or files outlive the module's sessions."""
    if Nodes.wanted:
        Nodes.address()
    files, threads, processes = shared_files(), lasting_threads(), processes_of_this_run()
    yield
    end_session()
    Shared.context = None

    def leftovers() -> list[str]:
        left = [f"process {pid}: {command_of(pid)}" for pid in processes_of_this_run() - processes]
        left += [f"thread {name}" for name in lasting_threads() - threads]
        return left + [f"file {name}" for name in shared_files() - files]

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not leftovers(), timeout=30, pause=0.05)
    if left := leftovers():
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)
