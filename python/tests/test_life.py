"""Life: sessions, their beginning and their end (behaviours 28 to 30)."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import _session, exceptions
from aktis.util import debug
from support import Latch, children_of, identity, is_alive, wait_until

pytestmark = pytest.mark.usefixtures("no_session")


# --- 28: init and shutdown ------------------------------------------------------------------------


def test_the_first_call_initialises() -> None:
    assert not aktis.is_initialized()
    assert aktis.get(identity.remote(1)) == 1
    assert aktis.is_initialized()
    aktis.shutdown()
    assert not aktis.is_initialized()
    assert aktis.get(aktis.put(1)) == 1
    assert aktis.is_initialized()


def test_init_gives_a_context() -> None:
    with aktis.init(num_cpus=1) as context:
        assert aktis.is_initialized()
        assert "node_id" in context
        assert dict(context)["node_id"] == aktis.get_runtime_context().get_node_id()
        assert "CPU=1" in repr(context)
        assert context.address_info["address"] == "local"
    assert not aktis.is_initialized()
    assert "closed" in repr(context)


def test_a_second_init_says_so() -> None:
    aktis.init(num_cpus=1)
    with pytest.raises(RuntimeError, match="ignore_reinit_error"):
        aktis.init(num_cpus=1)
    again = aktis.init(num_cpus=7, ignore_reinit_error=True)
    assert aktis.cluster_resources()["CPU"] == 1
    assert again["node_id"] == aktis.get_runtime_context().get_node_id()


def test_init_refuses_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKTIS_DIRECTORY", "/nowhere/at/all")
    with pytest.raises(TypeError, match="bogus"):
        aktis.init(bogus=1)
    with pytest.raises(ConnectionError):
        aktis.init("auto")
    with pytest.raises(ConnectionError, match=r"10\.0\.0\.1"):
        aktis.init("10.0.0.1:6379")
    for options in ({"num_cpus": "2"}, {"resources": 3}, {"namespace": 3}, {"runtime_env": 3}):
        with pytest.raises(TypeError):
            aktis.init(**options)
    for options in ({"num_cpus": -1}, {"resources": {"CPU": 1}}, {"namespace": ""}):
        with pytest.raises(ValueError):
            aktis.init(**options)
    assert not aktis.is_initialized()


def test_init_takes_what_ray_takes() -> None:
    aktis.init(
        address="local",
        num_cpus=1,
        num_gpus=0,
        resources={"disk": 2},
        labels={"zone": "a"},
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        namespace="mine",
        _system_config={"max_direct_call_object_size": 1000, "unheard_of": True},
        _temp_dir="/tmp",
    )
    assert aktis.cluster_resources()["disk"] == 2
    assert aktis.get_runtime_context().namespace == "mine"
    assert aktis.nodes()[0]["Labels"]["zone"] == "a"
    assert aktis.nodes()[0]["Alive"]


def test_shutdown_can_be_repeated() -> None:
    aktis.shutdown()
    aktis.init(num_cpus=1)
    aktis.shutdown()
    aktis.shutdown()
    for _ in range(3):
        aktis.init(num_cpus=1)
        assert aktis.get(identity.remote(2)) == 2
        aktis.shutdown()


def test_what_is_pending_ends_with_the_session(latch: Latch) -> None:
    aktis.init(num_cpus=1)

    @aktis.remote
    def waits(latch: Latch) -> None:
        latch.wait()

    running, queued = waits.remote(latch), waits.remote(latch)
    latch.wait_for_arrivals(1)
    aktis.shutdown()
    for ref in (running, queued):
        with pytest.raises(exceptions.AktisError):
            aktis.get(ref, timeout=10)


def test_private_sessions() -> None:
    aktis.init(num_cpus=1, namespace="public")
    outside = aktis.put("outside")
    with aktis.Session(num_cpus=1, resources={"private": 1}, namespace="private") as session:
        assert aktis.cluster_resources()["private"] == 1
        assert aktis.get_runtime_context().namespace == "private"
        assert aktis.get(identity.remote("inside")) == "inside"
        assert session.get(session.put(3)) == 3
        assert session.get(session.submit(identity, 4)) == 4
        assert not session.is_closed()
    assert session.is_closed()
    assert "private" not in aktis.cluster_resources()
    assert aktis.get(outside) == "outside"
    assert aktis.get(identity.remote("again")) == "again"


def test_two_sessions_side_by_side() -> None:
    one, other = aktis.Session(num_cpus=1), aktis.Session(num_cpus=1)
    try:
        refs = [one.submit(identity, 1), other.submit(identity, 2)]
        assert one.get(refs[0]) == 1
        assert other.get(refs[1]) == 2
    finally:
        one.shutdown()
        other.shutdown()
    assert not aktis.is_initialized()


def test_a_worker_is_initialised() -> None:
    @aktis.remote
    def asks() -> tuple[bool, str]:
        try:
            aktis.init()
        except RuntimeError as error:
            return aktis.is_initialized(), str(error)
        return False, ""

    known, text = aktis.get(asks.remote())
    assert known
    assert "already" in text


# --- 29: environments -----------------------------------------------------------------------------


@aktis.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


def test_variables_are_merged() -> None:
    aktis.init(num_cpus=2, runtime_env={"env_vars": {"JOB": "job", "BOTH": "job"}})

    @aktis.remote
    def nested() -> list[str | None]:
        names = ["JOB", "BOTH", "TASK", "NESTED"]
        child = variable.options(runtime_env={"env_vars": {"NESTED": "nested"}})
        return aktis.get([child.remote(name) for name in names])

    assert aktis.get([variable.remote("JOB"), variable.remote("BOTH")]) == ["job", "job"]
    own = {"env_vars": {"BOTH": "task", "TASK": "task"}}
    assert aktis.get(variable.options(runtime_env=own).remote("BOTH")) == "task"
    assert aktis.get(variable.options(runtime_env=own).remote("JOB")) == "job"
    assert aktis.get(nested.options(runtime_env=own).remote()) == ["job", "task", "task", "nested"]
    assert aktis.get(variable.remote("TASK")) is None, "a worker with other variables is not used again"


def test_a_working_directory(tmp_path: Path) -> None:
    aktis.init(num_cpus=2)
    (tmp_path / "module_of_its_own.py").write_text("VALUE = 1\n")

    @aktis.remote
    def looks() -> tuple[str, int]:
        import module_of_its_own

        return os.getcwd(), module_of_its_own.VALUE

    there = looks.options(runtime_env={"working_dir": str(tmp_path)})
    assert aktis.get(there.remote()) == (str(tmp_path), 1)
    with pytest.raises(ModuleNotFoundError):
        aktis.get(looks.remote())


def test_extra_modules(tmp_path: Path) -> None:
    package = tmp_path / "extra_package"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 5\n")

    @aktis.remote(runtime_env={"py_modules": [str(package)]})
    def looks() -> int:
        import extra_package

        return extra_package.VALUE

    aktis.init(num_cpus=1)
    assert aktis.get(looks.remote()) == 5


def test_the_path_of_the_driver_reaches_workers(tmp_path: Path, run_script: Any) -> None:
    folder = tmp_path / "added"
    folder.mkdir()
    (folder / "module_that_was_added.py").write_text("def value(): return 7\n")
    done = run_script(f"""
        import os, sys
        sys.path.append({str(folder)!r})
        import aktis, module_that_was_added
        @aktis.remote
        def uses():
            return module_that_was_added.value(), os.getcwd()
        print(aktis.get(uses.remote()))
    """)
    assert f"(7, {str(tmp_path)!r})" in done.stdout


def test_another_version_of_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "PYTHON", "cpython 3.1")
    aktis.init(num_cpus=1)

    @aktis.remote
    def task() -> None: ...

    @aktis.remote
    class Actor:
        def call(self) -> None: ...

    message = r"the driver runs cpython 3\.1, but .* is .*\nhint: "
    with pytest.raises(exceptions.RuntimeEnvSetupError, match=message):
        aktis.get(task.remote(), timeout=30)
    with pytest.raises(exceptions.AktisError, match=message):
        aktis.get(Actor.remote().call.remote(), timeout=30)


def test_the_environment_chooses_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AKTIS_OBJECT_STORE_MEMORY", str(64 << 20))
    monkeypatch.setenv("AKTIS_TMPDIR", str(tmp_path))
    aktis.init(num_cpus=1)
    assert debug.store_stats()["capacity_bytes"] == 64 << 20
    refs = [aktis.put(bytes(16 << 20)) for _ in range(6)]
    wait_until(lambda: debug.store_stats()["spilled_bytes"] > 0, what="something to be spilled")
    files = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            files.append(os.readlink(f"/proc/self/fd/{number}"))
    assert any(name.startswith(str(tmp_path)) for name in files)
    aktis.shutdown()
    del refs
    monkeypatch.setenv("AKTIS_OBJECT_STORE_MEMORY", "much")
    with pytest.raises(ValueError, match="AKTIS_OBJECT_STORE_MEMORY is a number of bytes"):
        aktis.init(num_cpus=1)


def test_a_setup_hook() -> None:
    def hook() -> None:
        os.environ["HOOKED"] = "yes"

    aktis.init(num_cpus=1, runtime_env={"worker_process_setup_hook": hook})
    assert aktis.get(variable.remote("HOOKED")) == "yes"


# --- 30: endings ----------------------------------------------------------------------------------

PROGRAM = """
    import os, subprocess, sys, time
    import aktis

    aktis.init(num_cpus=2)

    @aktis.remote
    def child():
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

    @aktis.remote
    class Actor:
        def pid(self):
            return os.getpid()

    actor = Actor.remote()
    @aktis.remote
    def worker():
        return os.getpid()
    pids = [aktis.get(actor.pid.remote()), aktis.get(worker.remote())]
    big = aktis.put(bytes(10_000_000))
    print("pids", *pids, flush=True)
    sys.stdin.readline()
    END
"""


def run_until_ready(tmp_path: Path, end: str) -> tuple[subprocess.Popen[str], list[int]]:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM).replace("END", end))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    while not line.startswith("pids"):
        assert line, "the program ended early"
        line = process.stdout.readline()
    return process, children_of(process.pid)


@pytest.mark.parametrize(
    "end",
    ["aktis.shutdown(); time.sleep(600)", "sys.exit(0)", "os._exit(1)", "raise RuntimeError", "os.abort()"],
)
def test_nothing_is_left(tmp_path: Path, end: str) -> None:
    process, pids = run_until_ready(tmp_path, end)
    try:
        assert len(pids) >= 3
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        wait_until(lambda: not any(map(is_alive, pids)), what="all processes to end")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_killed_driver(tmp_path: Path, number: int) -> None:
    process, pids = run_until_ready(tmp_path, "time.sleep(600)")
    try:
        assert all(map(is_alive, pids))
        os.kill(process.pid, number)
        wait_until(lambda: not any(map(is_alive, pids)), what="all processes to end")
    finally:
        process.kill()
        process.communicate()


def test_children_of_workers_end_too() -> None:
    aktis.init(num_cpus=1)

    @aktis.remote
    def starts() -> int:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

    pid = aktis.get(starts.remote())
    try:
        assert is_alive(pid)
        aktis.shutdown()
        wait_until(lambda: not is_alive(pid), what="the child of a worker to end")
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_program_ends_without_shutdown(run_script: Any) -> None:
    done = run_script("""
        import aktis
        @aktis.remote
        class Actor:
            def method(self): return 1
        actor = Actor.remote()
        print(aktis.get(actor.method.remote()))
        ref = aktis.put(bytes(1_000_000))
        view = aktis.get(ref)
    """)
    assert done.stdout.strip() == "1"
    assert done.stderr == ""


@pytest.mark.parametrize("where", ["atexit.register(aktis.shutdown)", "keeper = Keeper()", "handle()"])
def test_shutdown_from_odd_places(run_script: Any, where: str) -> None:
    done = run_script(f"""
        import atexit, os, signal
        import aktis
        aktis.init(num_cpus=1)
        @aktis.remote
        def f(): return 1
        print(aktis.get(f.remote()))
        class Keeper:
            def __del__(self, shutdown=aktis.shutdown): shutdown()
        def handle():
            signal.signal(signal.SIGUSR1, lambda *_: aktis.shutdown())
            os.kill(os.getpid(), signal.SIGUSR1)
        {where}
    """)
    assert done.stdout.strip() == "1"


def test_a_fork_of_the_driver_is_told_that_it_has_no_session(run_script: Any) -> None:
    done = run_script("""
        import os
        import aktis
        aktis.init(num_cpus=1)
        ref = aktis.put(1)
        pid = os.fork()
        if pid == 0:
            try:
                aktis.get(aktis.put(2), timeout=5)
            except BaseException as error:
                print("child:", type(error).__name__, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print("parent:", aktis.get(ref))
    """)
    assert "child: " in done.stdout
    assert "parent: 1" in done.stdout


def test_what_init_refuses(no_session: Any) -> None:
    for name in ("CPU", "GPU", "memory", "object_store_memory"):
        with pytest.raises(
            AssertionError, match=f"`{name}` cannot be a custom resource because it is one of"
        ):
            aktis.init(resources={name: 1})
    with pytest.raises(ValueError, match="absolute"):
        aktis.init(_temp_dir="relative")


def test_a_job_config_has_namespace_and_environment(no_session: Any) -> None:
    from aktis.job_config import JobConfig

    config = JobConfig(ray_namespace="space", runtime_env={"env_vars": {"A": "1"}}, code_search_path=["/x"])
    aktis.init(num_cpus=1, job_config=config)
    here = aktis.get_runtime_context()
    assert (here.namespace, here.runtime_env["env_vars"]) == ("space", {"A": "1"})
    assert config.code_search_path == ["/x"]


def test_workers_see_what_the_driver_sees(no_session: Any) -> None:
    aktis.init(num_cpus=2, resources={"x": 1})

    @aktis.remote(num_cpus=0)
    def seen() -> Any:
        return aktis.cluster_resources(), aktis.nodes()[0]["Labels"]

    assert aktis.get(seen.remote()) == (aktis.cluster_resources(), aktis.nodes()[0]["Labels"])
    assert aktis.nodes()[0]["Labels"]["ray.io/node-id"] == aktis.nodes()[0]["NodeID"]


def test_free_memory_of_the_store_shrinks_and_grows(no_session: Any) -> None:
    aktis.init(num_cpus=1)

    def free() -> float:
        return aktis.available_resources()["object_store_memory"]

    before = free()
    reference = aktis.put(bytes(10 << 20))
    assert before - free() >= 10 << 20
    del reference
    wait_until(lambda: free() == before)


def test_thousands_of_custom_resources(no_session: Any) -> None:
    names = {f"resource{number}": 1.0 for number in range(10_000)}
    aktis.init(num_cpus=1, resources=names)
    wanted = dict(list(names.items())[:3000])
    assert aktis.get(aktis.remote(num_cpus=0, resources=wanted)(os.getpid).remote(), timeout=30)
