"""The Pool drop-in, held against what the standard library's does."""

import itertools
import multiprocessing
import os
import threading
import time
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

import pytest

from aktis.util.multiprocessing import AsyncResult, Pool, TimeoutError
from support import PATIENCE_SECONDS, Latch, wait_until


def square(number: int) -> int:
    return number * number


def power(base: int, exponent: int = 2) -> int:
    result: int = base**exponent
    return result


def pid(_: Any = None) -> int:
    return os.getpid()


class Trouble(Exception):
    def __init__(self, number: int, *, detail: str) -> None:
        super().__init__(number, detail)
        self.number = number
        self.detail = detail

    def __reduce__(self) -> Any:
        return _trouble, (self.number, self.detail)


def _trouble(number: int, detail: str) -> Trouble:
    return Trouble(number, detail=detail)


def fail_at_three(number: int) -> int:
    if number == 3:
        raise ValueError(f"not {number}")
    return number


@pytest.fixture
def pool(shared_session: Any) -> Any:
    with Pool(2) as pool:
        yield pool


# --- results --------------------------------------------------------------------------------------


def test_apply(pool: Pool) -> None:
    assert pool.apply(power, (3,)) == 9
    assert pool.apply(power, (3,), {"exponent": 3}) == 27
    assert pool.apply(power, [2], {"exponent": 10}) == 1024
    assert pool.apply(pid) != os.getpid()
    assert pool.apply(lambda: "a lambda") == "a lambda"


def test_apply_async(pool: Pool) -> None:
    results = [pool.apply_async(square, (number,)) for number in range(50)]
    assert [result.get(timeout=20) for result in results] == [number**2 for number in range(50)]
    assert all(
        isinstance(result, AsyncResult) and result.ready() and result.successful() for result in results
    )


@pytest.mark.parametrize("chunksize", [None, 1, 3, 1000])
def test_map(pool: Pool, chunksize: int | None) -> None:
    numbers = range(101)
    expected = [number**2 for number in numbers]
    assert pool.map(square, numbers, chunksize) == expected
    assert pool.map(square, iter(numbers), chunksize) == expected
    assert pool.map_async(square, numbers, chunksize).get(20) == expected
    assert list(pool.imap(square, numbers, chunksize or 1)) == expected
    assert sorted(pool.imap_unordered(square, numbers, chunksize or 1)) == expected


def test_starmap(pool: Pool) -> None:
    pairs = list(itertools.product(range(5), range(4)))
    assert pool.starmap(power, pairs) == [power(*pair) for pair in pairs]
    assert pool.starmap_async(power, pairs, 3).get(20) == [power(*pair) for pair in pairs]


def test_nothing_to_do(pool: Pool) -> None:
    assert pool.map(square, []) == []
    assert pool.starmap(power, []) == []
    assert list(pool.imap(square, [])) == []
    assert list(pool.imap_unordered(square, [])) == []
    called: list[Any] = []
    pool.map_async(square, [], callback=called.append).wait(20)
    assert called == [[]]


def test_results_are_the_standard_librarys(shared_session: Any) -> None:
    with Pool(2) as ours, multiprocessing.get_context("fork").Pool(2) as theirs:
        for chunksize in (None, 1, 7):
            assert ours.map(square, range(30), chunksize) == theirs.map(square, range(30), chunksize)
            pairs = [(n, 3) for n in range(30)]
            assert ours.starmap(power, pairs, chunksize) == theirs.starmap(power, pairs, chunksize)


def test_work_is_spread_over_the_processes(pool: Pool, latch: Latch) -> None:
    results = [pool.apply_async(latch.wait) for _ in range(3)]
    # The third waits until one of the two is free.
    assert len(set(latch.wait_for_arrivals(2))) == 2
    assert not any(result.ready() for result in results)
    latch.open()
    for result in results:
        result.get(20)
    assert len(set(latch.arrivals())) == 2


# --- callbacks, waiting ---------------------------------------------------------------------------


def test_callbacks(pool: Pool) -> None:
    values: list[Any] = []
    errors: list[Any] = []
    callbacks = {"callback": values.append, "error_callback": errors.append}
    pool.apply_async(square, (3,), **callbacks).wait(20)
    pool.map_async(square, [1, 2], **callbacks).wait(20)
    pool.starmap_async(power, [(2, 3)], **callbacks).wait(20)
    assert (values, errors) == ([9, [1, 4], [8]], [])
    pool.apply_async(fail_at_three, (3,), **callbacks).wait(20)
    pool.map_async(fail_at_three, [1, 3], **callbacks).wait(20)
    assert len(values) == 3
    assert [str(error) for error in errors] == ["not 3", "not 3"]


def test_timeouts(pool: Pool, latch: Latch) -> None:
    result = pool.apply_async(latch.wait)
    with pytest.raises(multiprocessing.TimeoutError):
        result.get(timeout=0.05)
    with pytest.raises(TimeoutError):
        result.get(0)
    with pytest.raises(ValueError, match="not ready"):
        result.successful()
    result.wait(0.01)
    assert not result.ready()
    iterator = pool.imap(lambda _: latch.wait(), [1])
    with pytest.raises(TimeoutError):
        iterator.next(timeout=0.05)
    latch.open()
    assert result.get(20) is None
    assert iterator.next(20) is None
    with pytest.raises(StopIteration):
        iterator.next(20)


# --- exceptions -----------------------------------------------------------------------------------


def test_exceptions_have_their_type_and_the_remote_traceback(pool: Pool) -> None:
    with pytest.raises(ValueError, match="not 3") as caught:
        pool.apply(fail_at_three, (3,))
    assert type(caught.value) is ValueError
    assert "fail_at_three" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="not 3"):
        pool.map(fail_at_three, range(10))
    with pytest.raises(ValueError, match="not 3"):
        pool.map(fail_at_three, range(10), chunksize=10)
    result = pool.map_async(fail_at_three, range(10))
    result.wait(20)
    assert not result.successful()


def test_exceptions_keep_their_fields(pool: Pool) -> None:
    def fail() -> None:
        raise Trouble(7, detail="deep")

    with pytest.raises(Exception, match="deep") as caught:
        pool.apply(fail)
    assert type(caught.value).__name__ == "Trouble"
    assert (caught.value.number, caught.value.detail) == (7, "deep")  # type: ignore[attr-defined]


def test_exceptions_that_cannot_be_pickled_arrive_as_text(pool: Pool) -> None:
    def fail() -> None:
        error = KeyError("locked")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(RuntimeError, match=r"KeyError.*locked"):
        pool.apply(fail)


@pytest.mark.parametrize("unordered", [False, True])
@pytest.mark.parametrize("chunksize", [1, 4])
def test_imap_goes_on_after_an_exception(pool: Pool, unordered: bool, chunksize: int) -> None:
    iterate = pool.imap_unordered if unordered else pool.imap
    iterator = iterate(fail_at_three, range(6), chunksize)
    values, errors = [], 0
    for _ in range(6):
        try:
            values.append(next(iterator))
        except ValueError:
            errors += 1
    assert (sorted(values), errors) == ([0, 1, 2, 4, 5], 1)
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_iterable_that_raises(pool: Pool) -> None:
    def numbers() -> Any:
        yield 1
        yield 2
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        pool.map(square, numbers())
    iterator = pool.imap(square, numbers())
    assert [next(iterator), next(iterator)] == [1, 4]
    with pytest.raises(OSError, match="no more"):
        next(iterator)
    assert pool.apply(square, (5,)) == 25


def test_what_cannot_be_pickled(pool: Pool) -> None:
    with pytest.raises(MaybeEncodingError):
        pool.apply(threading.Lock)
    with pytest.raises(TypeError, match="pickle"):
        pool.apply(str, (threading.Lock(),))
    assert pool.apply(square, (4,)) == 16


def test_a_process_that_dies_fails_its_work_and_is_replaced(pool: Pool) -> None:
    for _ in range(3):
        with pytest.raises(Exception, match=r"(?i)died|exit|crash"):
            pool.apply_async(os._exit, (3,)).get(20)
    assert pool.map(square, range(10)) == [number**2 for number in range(10)]


# --- lazy iteration -------------------------------------------------------------------------------


def test_imap_draws_its_arguments_as_workers_are_free(pool: Pool, latch: Latch) -> None:
    drawn: list[int] = []

    def numbers() -> Any:
        for number in itertools.count():
            drawn.append(number)
            yield number

    iterator = pool.imap(lambda number: (latch.wait(), number)[1], numbers())
    latch.wait_for_arrivals(2)
    assert len(drawn) <= 4
    latch.open()
    assert [next(iterator) for _ in range(10)] == list(range(10))
    pool.terminate()


def test_arguments_may_depend_on_earlier_results(pool: Pool) -> None:
    results: list[int] = []
    arrived = threading.Condition()

    def numbers() -> Any:
        yield 1
        for count in range(1, 5):
            with arrived:
                assert arrived.wait_for(lambda count=count: len(results) == count, PATIENCE_SECONDS)
            yield results[-1] + 1

    for value in pool.imap(square, numbers()):
        with arrived:
            results.append(value)
            arrived.notify()
    assert results == [1, 4, 25, 676, 458329]


# --- processes ------------------------------------------------------------------------------------


def test_initializer(shared_session: Any) -> None:
    def prepare(value: str, number: int) -> None:
        os.environ["PREPARED"] = f"{value}{number}"

    with Pool(2, prepare, ("x", 1)) as pool:
        assert set(pool.map(lambda _: os.environ["PREPARED"], range(20), 1)) == {"x1"}


def test_an_initializer_that_raises(shared_session: Any) -> None:
    def prepare() -> None:
        raise RuntimeError("cannot prepare")

    with Pool(1, initializer=prepare) as pool, pytest.raises(Exception, match="cannot prepare"):
        pool.apply(square, (1,))


def test_maxtasksperchild(shared_session: Any) -> None:
    with Pool(1, maxtasksperchild=2) as pool:
        pids = [pool.apply(pid) for _ in range(6)]
    assert pids[0] == pids[1]
    assert pids[2] == pids[3]
    assert len(set(pids)) == 3


def test_more_processes_than_cpus(shared_session: Any, latch: Latch) -> None:
    with Pool(5) as pool:
        results = [pool.apply_async(latch.wait) for _ in range(5)]
        latch.wait_for_arrivals(5)
        latch.open()
        for result in results:
            result.get(20)


def test_default_size_is_the_number_of_cpus(shared_session: Any) -> None:
    with Pool() as pool:
        assert repr(pool) == "<Pool state=RUN pool_size=2>"


def test_bad_arguments(shared_session: Any) -> None:
    with pytest.raises(ValueError):
        Pool(0)
    with pytest.raises(TypeError):
        Pool(1, initializer=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Pool(1, maxtasksperchild=0)
    with Pool(1) as pool, pytest.raises(ValueError):
        pool.imap(square, [1], chunksize=0)


# --- life -----------------------------------------------------------------------------------------


def test_close_and_join(shared_session: Any) -> None:
    pool = Pool(2)
    result = pool.map_async(square, range(20), 1)
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    pool.close()
    for call in (
        lambda: pool.apply(square, (1,)),
        lambda: pool.map_async(square, [1]),
        lambda: pool.imap(square, [1]),
        lambda: pool.__enter__(),
    ):
        with pytest.raises(ValueError, match="not running"):
            call()
    pool.join()
    assert result.get(0) == [number**2 for number in range(20)]


def test_terminate_does_not_wait(shared_session: Any, tmp_path: Path) -> None:
    pool = Pool(1)
    latch = Latch(tmp_path / "never")
    running = pool.apply_async(latch.wait)
    queued = pool.map_async(square, range(5))
    latch.wait_for_arrivals(1)
    begin = time.monotonic()
    pool.terminate()
    pool.join()
    assert time.monotonic() - begin < 10
    for result in (running, queued):
        with pytest.raises(RuntimeError, match="terminated"):
            result.get(5)


def test_the_end_of_a_with_block_terminates(shared_session: Any) -> None:
    with Pool(1) as pool:
        assert pool.apply(square, (2,)) == 4
    with pytest.raises(ValueError, match="not running"):
        pool.apply(square, (2,))


def test_a_result_outlives_the_last_reference_to_its_pool(shared_session: Any) -> None:
    assert Pool(2).map_async(square, range(10)).get(20) == [number**2 for number in range(10)]


def test_a_pool_that_nobody_uses_ends_its_processes(shared_session: Any) -> None:
    from support import is_alive

    pool = Pool(1)
    worker = pool.apply(pid)
    del pool
    wait_until(lambda: not is_alive(worker))


def test_a_pool_cannot_be_pickled(pool: Pool) -> None:
    import pickle

    with pytest.raises(NotImplementedError):
        pickle.dumps(pool)


def test_a_pool_inside_of_a_task(shared_session: Any) -> None:
    import aktis

    @aktis.remote
    def work() -> list[int]:
        with Pool(2) as pool:
            return pool.map(square, range(5))

    assert aktis.get(work.remote()) == [0, 1, 4, 9, 16]
