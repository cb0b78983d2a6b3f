"""Generators and their consumers: what looking at items does, and how a stream ends."""

import os
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Latch, get, wait_until


@aktis.remote(num_cpus=0, _generator_backpressure_num_objects=1)
def held(folder: str) -> Any:
    for number in range(3):
        Path(folder, str(number)).touch()
        yield number
    Path(folder, "end").touch()


def test_looking_at_an_item_takes_none(shared_session: Any, tmp_path: Path) -> None:
    generator = held.remote(str(tmp_path))
    assert aktis.wait([generator], timeout=10)[0] == [generator]
    assert generator.next_ready()
    # A second call of an actor is a round trip that the task would have used to go on.
    for _ in range(20):
        get(aktis.remote(num_cpus=0)(os.getpid).remote())
    assert not (tmp_path / "1").exists()
    assert get(next(generator)) == 0
    wait_until((tmp_path / "1").exists)


def test_the_end_is_neither_ready_nor_unfinished(shared_session: Any) -> None:
    @aktis.remote(num_cpus=0)
    def two() -> Any:
        yield 1
        yield 2

    generator = two.remote()
    assert [get(ref) for ref in generator] == [1, 2]
    assert (generator.next_ready(), generator.is_finished()) == (False, True)


def test_completed_tells_of_a_failure_afterwards(shared_session: Any) -> None:
    @aktis.remote(num_cpus=0, max_retries=0)
    def fails() -> Any:
        yield 1
        raise ValueError("in the middle")

    generator = fails.remote()
    first, failed = list(generator)
    assert get(first) == 1
    for ref in (failed, generator.completed(), generator._generator_ref):
        with pytest.raises(ValueError, match="in the middle"):
            get(ref)


def test_a_cancelled_generator_ends_with_one_error(shared_session: Any, latch: Latch) -> None:
    @aktis.remote(num_cpus=0)
    def stuck() -> Any:
        yield 1
        latch.wait()

    generator = stuck.remote()
    assert get(next(generator)) == 1
    latch.wait_for_arrivals(1)
    aktis.cancel(generator)
    with pytest.raises(exceptions.TaskCancelledError, match="was cancelled"):
        get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)
    with pytest.raises(exceptions.TaskCancelledError):
        get(generator.completed())


def test_a_generator_that_raises_is_retried(shared_session: Any, tmp_path: Path) -> None:
    @aktis.remote(num_cpus=0, max_retries=2, retry_exceptions=[ValueError])
    def flaky() -> Any:
        tries = len(list(tmp_path.iterdir()))
        (tmp_path / str(tries)).touch()
        for number in range(4):
            if number == tries + 1 and tries < 2:
                raise ValueError("again")
            yield number

    assert [get(ref) for ref in flaky.remote()] == [0, 1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 3


def test_no_room_ahead_is_refused() -> None:
    with pytest.raises(ValueError, match="backpressure_num_objects=0 is not allowed"):
        held.options(_generator_backpressure_num_objects=0)
