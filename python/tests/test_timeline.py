"""aktis.timeline(): what ran when, as a trace."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aktis

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.one_node("a node knows the times of what ran on it"),
]


@aktis.remote
def work() -> int:
    time.sleep(0.01)
    return os.getpid()


def events_of(name: str) -> list[dict[str, Any]]:
    events = aktis.timeline()
    assert events is not None
    return [event for event in events if event["name"] == name]


def test_tasks_are_in_it_with_their_workers_and_times(tmp_path: Path) -> None:
    assert events_of("work") == []
    before = time.time() * 1e6
    refs = [work.remote() for _ in range(5)]
    pids = aktis.get(refs)
    after = time.time() * 1e6
    events = events_of("work")
    assert sorted(event["tid"] for event in events) == sorted(f"worker:{pid}" for pid in pids)
    assert {event["args"]["task_id"] for event in events} == {ref.task_id().hex() for ref in refs}
    for event in events:
        assert (event["ph"], event["cat"]) == ("X", "task")
        # The clocks of machine and world may drift apart a little.
        assert before - 1e4 <= event["ts"] <= event["ts"] + event["dur"] <= after + 1e4
        assert event["dur"] >= 1e4
    assert aktis.timeline(str(tmp_path / "trace.json")) is None
    assert json.loads((tmp_path / "trace.json").read_text()) == aktis.timeline()


def test_what_fails_and_what_runs_in_actors_is_in_it() -> None:
    @aktis.remote
    def fails() -> None:
        raise ValueError

    @aktis.remote
    def count() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.01)
            yield number

    @aktis.remote(num_cpus=0)
    class Plain:
        def method(self) -> None:
            pass

    @aktis.remote(num_cpus=0)
    class Looped:
        async def method(self) -> None:
            pass

    with pytest.raises(ValueError):
        aktis.get(fails.remote())
    assert [aktis.get(ref) for ref in count.remote()] == [0, 1, 2]
    plain, looped = Plain.remote(), Looped.remote()
    aktis.get([plain.method.remote(), plain.method.remote(), looped.method.remote()])
    kinds = {
        "fails": ["task"],
        "count": ["task"],
        "Plain.__init__": ["actor_creation"],
        "Plain.method": ["actor_task"] * 2,
        "Looped.method": ["actor_task"],
    }
    assert {name: [event["cat"] for event in events_of(name)] for name in kinds} == kinds
    assert events_of("count")[0]["dur"] >= 3e4


def test_a_worker_keeps_a_bounded_number() -> None:
    @aktis.remote(num_cpus=0)
    class Counter:
        def method(self) -> None:
            pass

    actor = Counter.remote()
    aktis.get([actor.method.remote() for _ in range(3000)])
    assert len(events_of("Counter.method")) == 2048


def test_the_workers_see_it_too() -> None:
    @aktis.remote
    def look() -> int:
        return len(events_of("work"))

    aktis.get(work.remote())
    assert aktis.get(look.remote()) == 1
