"""`_system_config`: every key is accepted; those that mean something here do what they say."""

import os
import signal
import threading
import time
from typing import Any

import pytest

import aktis
from aktis import _system_config
from aktis.util import debug
from support import Latch, wait_until

MEBIBYTE = 1 << 20


@aktis.remote
def zeros(size: int) -> bytes:
    return bytes(size)


@aktis.remote
def length(value: bytes) -> int:
    return len(value)


@aktis.remote
def waits(latch: Latch) -> None:
    latch.wait()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"max_direct_call_object_size": "many"}, TypeError),
        ({"max_direct_call_object_size": -1}, ValueError),
        ({"max_lineage_bytes": None}, TypeError),
        ({"task_retry_delay_ms": float("nan")}, ValueError),
        ({"object_spilling_threshold": 2}, ValueError),
        ({"object_spilling_threshold": "half"}, TypeError),
    ],
)
def test_values_that_make_no_sense_are_refused(
    given: dict[str, Any], error: type[Exception], no_session: None
) -> None:
    (key,) = given
    with pytest.raises(error, match=key):
        aktis.init(num_cpus=1, _system_config=given)
    assert not aktis.is_initialized()


def test_what_the_settings_mean() -> None:
    usual = _system_config.Settings({"no_such_key": object(), "health_check_period_ms": 5})
    tuning = {"retry_delay_milliseconds": 10, "retry_doubles": 1}
    assert (usual.tuning, usual.spill_above_percent, usual.spill_bytes_max > 1 << 40) == (tuning, 80, True)
    settings = _system_config.Settings(
        {
            "automatic_object_spilling_enabled": False,
            "object_spilling_threshold": 0.5,
            "max_direct_call_object_size": 100,
            "max_lineage_bytes": 1 << 20,
            "task_retry_delay_ms": 10.0,
        }
    )
    assert (settings.spill_bytes_max, settings.spill_above_percent) == (0, 50)
    assert settings.tuning == {
        "inline_bytes_max": 100,
        "lineage_bytes_max": 1 << 20,
        "retry_delay_milliseconds": 10,
    }
    unpinned = _system_config.Settings({"lineage_pinning_enabled": "0"})
    assert unpinned.tuning == {**tuning, "lineage_bytes_max": 0}


@pytest.mark.parametrize("limit", [None, 100])
def test_the_limit_of_inline_values(limit: int | None, no_session: None) -> None:
    aktis.init(num_cpus=1, _system_config={} if limit is None else {"max_direct_call_object_size": limit})
    stored = limit is not None
    mine = aktis.put(bytes(1000))
    result = zeros.remote(1000)
    assert aktis.get(result) == bytes(1000)
    assert (debug.object_exists(mine), debug.object_exists(result)) == (stored, stored)
    assert not debug.object_exists(aktis.put(1))
    assert aktis.get(length.remote(bytes(1000))) == 1000


@pytest.mark.parametrize(("threshold", "spills"), [(0.3, True), (0.9, False)])
def test_the_threshold_of_spilling(threshold: float, spills: bool, no_session: None) -> None:
    aktis.init(
        num_cpus=1,
        object_store_memory=64 * MEBIBYTE,
        _system_config={"object_spilling_threshold": threshold},
    )
    kept = [aktis.put(bytes(8 * MEBIBYTE)) for _ in range(4)]
    if spills:
        wait_until(lambda: debug.store_stats()["spilled_bytes"] > 0, what="something to be spilled")
    assert [len(aktis.get(ref)) for ref in kept] == [8 * MEBIBYTE] * 4
    assert (debug.store_stats()["spilled_bytes"] > 0) == spills


@pytest.mark.parametrize("raises", [False, True])
def test_a_task_waits_before_it_is_tried_again(raises: bool, latch: Latch, no_session: None) -> None:
    delay = 0.5
    aktis.init(num_cpus=1, _system_config={"task_retry_delay_ms": int(delay * 1000)})

    @aktis.remote(max_retries=1, retry_exceptions=[ValueError])
    def fails_once(latch: Latch) -> float:
        if latch.arrivals():
            return time.monotonic()
        latch.arrive()
        (latch.folder / "time").write_text(str(time.monotonic()))
        if raises:
            raise ValueError
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    second = aktis.get(fails_once.remote(latch), timeout=20)
    assert second - float((latch.folder / "time").read_text()) >= delay


def test_a_task_that_waits_for_its_next_attempt_is_cancelled(latch: Latch, no_session: None) -> None:
    aktis.init(num_cpus=1, _system_config={"task_retry_delay_ms": 3_600_000})

    @aktis.remote(max_retries=1, retry_exceptions=True)
    def fails(latch: Latch) -> None:
        latch.arrive()
        raise ValueError

    ref = fails.remote(latch)
    latch.wait_for_arrivals(1)
    assert aktis.get(length.remote(b"abc"), timeout=20) == 3
    aktis.cancel(ref)
    with pytest.raises(aktis.exceptions.TaskCancelledError):
        aktis.get(ref, timeout=20)
    assert len(latch.arrivals()) == 1


def test_who_waits_for_room_does_not_hold_up_other_threads(latch: Latch, no_session: None) -> None:
    aktis.init(num_cpus=1, _system_config={"queued_tasks_max": 64})
    submitted: list[Any] = []

    def submit() -> None:
        for _ in range(200):
            submitted.append(waits.remote(latch))

    thread = threading.Thread(target=submit)
    thread.start()
    latch.wait_for_arrivals(1)
    assert len(submitted) < 200
    latch.open()
    thread.join()
    aktis.get(submitted, timeout=20)


def test_waiting_for_room_can_be_interrupted(run_script: Any) -> None:
    done = run_script(
        """
        import os, signal, threading, time
        import aktis

        aktis.init(num_cpus=1, _system_config={"queued_tasks_max": 64})

        @aktis.remote
        def waits():
            time.sleep(600)

        count = 0

        def interrupt():
            before = -1
            while before != count or count < 32:
                before = count
                time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        kept = []
        try:
            while True:
                kept.append(waits.remote())
                count += 1
        except KeyboardInterrupt:
            print("interrupted", count < 200)
        """
    )
    assert done.stdout == "interrupted True\n"
