"""Generators: items while the task runs, exceptions, back-pressure, endings (behaviour 24)."""

import asyncio
import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Latch, is_alive, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")


@aktis.remote
def counts(limit: int) -> Any:
    yield from range(limit)


def test_a_generator_function_gives_a_generator_of_references() -> None:
    generator = counts.remote(5)
    assert isinstance(generator, aktis.ObjectRefGenerator)
    assert iter(generator) is generator
    assert [aktis.get(ref) for ref in generator] == [0, 1, 2, 3, 4]
    with pytest.raises(StopIteration):
        next(generator)
    assert list(counts.remote(0)) == []


def test_items_arrive_while_it_runs(latch: Latch) -> None:
    @aktis.remote
    def slow(latch: Latch) -> Any:
        yield "first"
        latch.wait()
        yield "second"

    generator = slow.remote(latch)
    assert aktis.get(next(generator)) == "first"
    latch.wait_for_arrivals(1)
    assert not latch.is_open()
    latch.open()
    assert [aktis.get(ref) for ref in generator] == ["second"]


def test_an_exception_is_one_more_reference() -> None:
    @aktis.remote
    def fails() -> Any:
        yield 1
        raise ValueError("in the middle")

    generator = fails.remote()
    assert aktis.get(next(generator)) == 1
    failed = next(generator)
    with pytest.raises(ValueError, match="in the middle"):
        aktis.get(failed)
    with pytest.raises(StopIteration):
        next(generator)


def test_a_task_that_fails_before_it_begins() -> None:
    @aktis.remote
    def bad() -> int:
        raise ValueError("x")

    generator = counts.remote(bad.remote())
    with pytest.raises(ValueError):
        aktis.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


@pytest.mark.parametrize("size", [10, 500_000])
def test_many_items(size: int) -> None:
    @aktis.remote
    def makes(number: int, size: int) -> Any:
        for value in range(number):
            yield bytes([value]) * size

    number = 20
    found = [aktis.get(ref) for ref in makes.remote(number, size)]
    assert found == [bytes([value]) * size for value in range(number)]


def test_methods_generate() -> None:
    @aktis.remote
    class Maker:
        def items(self, limit: int) -> Any:
            yield from range(limit)

        def plain(self) -> str:
            return "plain"

    maker = Maker.remote()
    assert [aktis.get(ref) for ref in maker.items.remote(3)] == [0, 1, 2]
    assert aktis.get(maker.plain.remote()) == "plain"


def test_async_methods_generate() -> None:
    @aktis.remote
    class Maker:
        async def items(self, limit: int) -> Any:
            for number in range(limit):
                await asyncio.sleep(0)
                yield number

        async def fails(self) -> Any:
            yield 1
            raise ValueError("later")

    maker = Maker.remote()
    assert [aktis.get(ref) for ref in maker.items.remote(3)] == [0, 1, 2]
    first, second = maker.fails.remote()
    assert aktis.get(first) == 1
    with pytest.raises(ValueError, match="later"):
        aktis.get(second)


def test_async_iteration() -> None:
    async def main() -> None:
        found = []
        async for ref in counts.remote(5):
            found.append(await ref)
        assert found == [0, 1, 2, 3, 4]

        async def collect(number: int) -> list[int]:
            return [await ref async for ref in counts.remote(number)]

        assert await asyncio.gather(collect(3), collect(4)) == [[0, 1, 2], [0, 1, 2, 3]]

    asyncio.run(main())


def test_the_end_can_be_waited_for(latch: Latch) -> None:
    @aktis.remote
    def slow(latch: Latch) -> Any:
        yield 1
        latch.wait()

    generator = slow.remote(latch)
    done = generator.completed()
    latch.wait_for_arrivals(1)
    assert aktis.wait([done], timeout=0.05) == ([], [done])
    latch.open()
    aktis.get(done, timeout=20)
    assert [aktis.get(ref) for ref in generator] == [1]
    assert generator.is_finished()


def test_a_number_of_returns_turns_items_into_results() -> None:
    assert aktis.get(counts.options(num_returns=3).remote(3)) == [0, 1, 2]
    for ref in counts.options(num_returns=2).remote(3):
        with pytest.raises(ValueError, match="num_returns"):
            aktis.get(ref)


def test_dynamic_generators() -> None:
    ref = counts.options(num_returns="dynamic").remote(3)
    assert isinstance(ref, aktis.ObjectRef)
    assert [aktis.get(item) for item in aktis.get(ref)] == [0, 1, 2]


def test_a_plain_function_may_stream_what_it_returns() -> None:
    @aktis.remote(num_returns="streaming")
    def gives() -> list[int]:
        return [1, 2]

    assert [aktis.get(ref) for ref in gives.remote()] == [1, 2]


def test_a_producer_waits_for_its_consumer(tmp_path: Path) -> None:
    @aktis.remote(_generator_backpressure_num_objects=2)
    def makes(folder: Path) -> Any:
        for number in range(10):
            (folder / str(number)).touch()
            yield number

    generator = makes.remote(tmp_path)
    wait_until(lambda: (tmp_path / "1").exists(), what="two items")
    assert aktis.wait([generator], timeout=0.2)[0] == [generator]
    assert len(list(tmp_path.iterdir())) <= 4, "it is at most a little ahead"
    assert [aktis.get(ref) for ref in generator] == list(range(10))


def test_a_consumer_that_goes_leaves_nobody_blocked(tmp_path: Path) -> None:
    @aktis.remote(_generator_backpressure_num_objects=1)
    def endless(folder: Path) -> Any:
        try:
            while True:
                yield 1
        finally:
            (folder / "closed").touch()

    generator = endless.remote(tmp_path)
    assert aktis.get(next(generator)) == 1
    del generator
    gc.collect()
    wait_until(lambda: (tmp_path / "closed").exists(), what="the generator to be closed")
    assert aktis.get(list(counts.remote(1))) == [0]


def test_the_death_of_the_worker_ends_the_stream(latch: Latch) -> None:
    @aktis.remote(max_retries=0)
    def dies(latch: Latch) -> Any:
        yield os.getpid()
        latch.wait()

    generator = dies.remote(latch)
    pid = aktis.get(next(generator))
    latch.wait_for_arrivals(1)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(exceptions.WorkerCrashedError):
        aktis.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)
    assert not is_alive(pid)


def test_a_retried_generator_does_not_repeat_itself(tmp_path: Path) -> None:
    latch = Latch(tmp_path / "latch")

    @aktis.remote(max_retries=1)
    def dies_once(latch: Latch) -> Any:
        for number in range(5):
            if number == 3 and not latch.is_open():
                latch.wait()
            yield number

    generator = dies_once.remote(latch)
    found = [aktis.get(next(generator)) for _ in range(2)]
    (pid,) = latch.wait_for_arrivals(1)
    (latch.folder / "open").touch()
    os.kill(pid, signal.SIGKILL)
    found += [aktis.get(ref) for ref in generator]
    assert found == [0, 1, 2, 3, 4]


def test_generators_cannot_be_sent() -> None:
    @aktis.remote
    def takes(value: Any) -> None:
        pass

    with pytest.raises(TypeError, match="generator"):
        takes.remote([counts.remote(1)])
