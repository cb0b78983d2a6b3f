"""Actors with `max_concurrency`: calls that overlap, that wait for each other, and threads that stay."""

import threading
from pathlib import Path
from typing import Any

import pytest

import aktis
from support import Latch

pytestmark = pytest.mark.usefixtures("shared_session")


def test_threaded_actors(tmp_path: Path) -> None:
    @aktis.remote(max_concurrency=3)
    class Threaded:
        def wait(self, latch: Latch) -> str:
            latch.wait()
            return threading.current_thread().name

    actor = Threaded.remote()
    latch = Latch(tmp_path / "threads")
    refs = [actor.wait.remote(latch) for _ in range(4)]
    latch.wait_for_arrivals(3)
    assert aktis.wait(refs, timeout=0.1)[0] == []
    assert len(latch.arrivals()) == 3, "no more than three at once"
    latch.open()
    assert len(aktis.get(refs)) == 4


@aktis.remote(max_concurrency=16)
class Crowd:
    """Its calls are brief, or wait for each other."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(16)
        self.opened = threading.Event()
        self.own = threading.local()
        self.threads = 0

    def glance(self, value: int) -> int:
        return value

    def meet(self) -> bool:
        if not hasattr(self.own, "seen"):
            self.own.seen = True
            self.threads += 1
        return self.meeting.wait(20) >= 0

    def wait(self) -> bool:
        return self.opened.wait(20)

    def open(self) -> None:
        self.opened.set()

    def ask(self, other: Any, value: int) -> Any:
        return aktis.get(other.glance.remote(value), timeout=20)

    def seen(self) -> int:
        return self.threads


def test_calls_that_block_overlap_after_brief_ones() -> None:
    crowd = Crowd.remote()
    for _ in range(3):
        assert aktis.get([crowd.glance.remote(value) for value in range(2000)]) == list(range(2000))
        meetings = [crowd.meet.remote() for _ in range(32)]
        assert all(aktis.get(meetings, timeout=20)), "sixteen at once"


def test_calls_of_one_actor_wait_for_each_other() -> None:
    crowd = Crowd.remote()
    brief = [crowd.glance.remote(value) for value in range(1000)]
    waiting = [crowd.wait.remote() for _ in range(15)]
    between = [crowd.glance.remote(value) for value in range(100)]
    crowd.open.remote()
    assert all(aktis.get(waiting, timeout=20))
    assert aktis.get(brief + between) == [*range(1000), *range(100)]
    for _ in range(20):
        asked = [crowd.ask.remote(crowd, value) for value in range(15)]
        assert aktis.get(asked, timeout=20) == list(range(15))


def test_threads_of_an_actor_keep_what_is_theirs() -> None:
    crowd = Crowd.remote()
    for _ in range(10):
        aktis.get([crowd.meet.remote() for _ in range(16)], timeout=20)
    assert aktis.get(crowd.seen.remote()) <= 17, "one thread for each call, and one for messages"
