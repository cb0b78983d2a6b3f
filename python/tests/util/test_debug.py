"""aktis.util.debug: who holds what, the store in numbers, and the key-value space."""

import os
from typing import Any

import pytest

import aktis
from aktis.util import debug
from support import Latch, wait_until

LARGE = 4 << 20


def test_reference_counts(session: Any) -> None:
    reference = aktis.put(bytes(LARGE))
    name = reference.hex()
    assert debug.reference_counts()[name]["local"] == 1
    second = aktis.put([reference])
    del reference
    counts = debug.reference_counts()
    assert second.hex() in counts
    del second
    wait_until(lambda: not debug.reference_counts())


def test_reference_counts_of_small_values_and_of_what_is_submitted(session: Any, latch: Latch) -> None:
    @aktis.remote
    def wait(latch: Latch, value: int) -> int:
        latch.wait()
        return value

    @aktis.remote
    class Echo:
        def echo(self, value: int) -> int:
            return value

    small = aktis.put(1)
    result = wait.remote(latch, small)
    latch.wait_for_arrivals(1)
    counts = debug.reference_counts()
    assert counts[small.hex()] == {"local": 1, "submitted": 1}
    assert counts[result.hex()] == {"local": 1, "submitted": 0}
    latch.open()
    assert aktis.get(result) == 1
    actor = Echo.remote()
    answer = actor.echo.remote(2)
    assert aktis.get(answer) == 2
    again = small
    counts = debug.reference_counts()
    assert counts[again.hex()] == {"local": 1, "submitted": 0}
    assert counts[answer.hex()] == {"local": 1, "submitted": 0}
    del small, again, result, answer
    wait_until(lambda: not debug.reference_counts())


def test_reference_counts_without_a_session(no_session: Any) -> None:
    assert debug.reference_counts() == {}
    assert not aktis.is_initialized()


def test_object_exists(session: Any) -> None:
    reference = aktis.put(bytes(LARGE))
    name = reference.hex()
    assert debug.object_exists(reference)
    assert debug.object_exists(name)
    del reference
    wait_until(lambda: not debug.object_exists(name))


def test_store_stats(session: Any) -> None:
    before = debug.store_stats()
    assert before["capacity_bytes"] > 0
    reference = aktis.put(bytes(LARGE))
    after = debug.store_stats()
    assert after["used_bytes"] >= before["used_bytes"] + LARGE
    assert after["capacity_bytes"] == before["capacity_bytes"]
    assert (after["spilled_bytes"], after["restored_bytes"]) == (0, 0)
    del reference
    wait_until(lambda: debug.store_stats()["used_bytes"] <= before["used_bytes"])


def test_memory_summary_names_what_is_held(session: Any) -> None:
    reference = aktis.put(bytes(LARGE))
    summary = debug.memory_summary()
    (line,) = [line for line in summary.splitlines() if line.startswith(reference.hex())]
    assert int(line.split()[1]) >= LARGE
    assert "bytes used" in summary.splitlines()[-1]


def test_available_resources_per_node(session: Any) -> None:
    node = aktis.get_runtime_context().get_node_id()
    assert debug.available_resources_per_node()[node]["CPU"] == 2

    @aktis.remote(num_cpus=1)
    class Holder:
        def ready(self) -> None: ...

    holder = Holder.remote()
    aktis.get(holder.ready.remote())
    assert debug.available_resources_per_node()[node]["CPU"] == 1


def test_jobs(session: Any) -> None:
    own = aktis.get_runtime_context().get_job_id()
    jobs = debug.jobs()
    (job,) = [job for job in jobs if job["JobID"] == own]
    assert job["DriverPid"] == os.getpid()
    assert job["IsDead"] is False

    @aktis.remote
    def elsewhere() -> Any:
        return debug.jobs()

    assert aktis.get(elsewhere.remote()) == jobs


def test_kill_node_says_what_is_missing(no_session: Any) -> None:
    aktis.init(num_cpus=1)
    with pytest.raises(ValueError, match="not started by this process"):
        debug.kill_node(aktis.get_runtime_context().get_node_id())
    with pytest.raises(ValueError, match="no node"):
        debug.kill_node("00" * 16)


# --- the key-value space --------------------------------------------------------------------------


def test_keys_and_values(session: Any) -> None:
    assert debug.kv_put("a", b"1") is True
    assert debug.kv_put(b"a", "2") is False
    assert debug.kv_get("a") == b"2"
    assert debug.kv_put("a", b"3", overwrite=False) is False
    assert debug.kv_get("a") == b"2"
    assert debug.kv_exists("a")
    assert debug.kv_del("a") == 1
    assert debug.kv_del("a") == 0
    assert debug.kv_get("a") is None
    assert not debug.kv_exists("a")
    with pytest.raises(TypeError):
        debug.kv_put(1, b"")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        debug.kv_put("a", 1)  # type: ignore[arg-type]


def test_an_empty_value_is_one(session: Any) -> None:
    debug.kv_put("empty", b"")
    assert debug.kv_get("empty") == b""
    assert debug.kv_exists("empty")


def test_prefixes(session: Any) -> None:
    for key in ("x/1", "x/2", "y/1"):
        debug.kv_put(key, key)
    assert debug.kv_list("x/") == [b"x/1", b"x/2"]
    assert debug.kv_list() == [b"x/1", b"x/2", b"y/1"]
    assert debug.kv_del("x/", del_by_prefix=True) == 2
    assert debug.kv_list() == [b"y/1"]


def test_namespaces_do_not_meet(session: Any) -> None:
    debug.kv_put("b/c", "1", namespace="a")
    debug.kv_put("c", "2", namespace="a/b")
    debug.kv_put("c", "3")
    assert debug.kv_get("b/c", namespace="a") == b"1"
    assert debug.kv_get("c", namespace="a/b") == b"2"
    assert debug.kv_list(namespace="a") == [b"b/c"]
    assert debug.kv_list() == [b"c"]


def test_all_processes_share_it(session: Any) -> None:
    debug.kv_put("from the driver", "1")

    @aktis.remote
    def exchange() -> Any:
        debug.kv_put("from the worker", "2")
        return debug.kv_get("from the driver")

    assert aktis.get(exchange.remote()) == b"1"
    assert debug.kv_get("from the worker") == b"2"


def test_a_new_session_is_empty(session: Any) -> None:
    debug.kv_put("old", "1")
    aktis.shutdown()
    aktis.init(num_cpus=1)
    assert debug.kv_get("old") is None


# --- logging --------------------------------------------------------------------------------------


def test_log_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "_logged", set())
    assert debug.log_once("a")
    assert not debug.log_once("a")
    assert debug.log_once("b")
    monkeypatch.setattr(debug, "_log_once_enabled", True)
    debug.disable_log_once_globally()
    assert not debug.log_once("c")
