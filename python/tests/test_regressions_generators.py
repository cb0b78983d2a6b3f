"""Scenarios of bugs that generators once had. Each test says what a user saw go wrong."""

import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import PATIENCE, Latch, get, identity, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")


def attempts(file: Path) -> int:
    return file.stat().st_size


def attempt(file: Path) -> int:
    """Notes one more attempt in a file; gives their number."""
    with file.open("a") as log:
        log.write(".")
    return attempts(file)


def is_asleep(thread: threading.Thread) -> bool:
    """Whether a thread of this process waits for something."""
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


# --- what becomes of items ------------------------------------------------------------------------


def test_large_items_outlive_a_retry(tmp_path: Path) -> None:
    """When a generator was run again, its large items came a second time; dropping the copies freed the
    items that the consumer held: "is not in the store any more"."""
    first, middle = Latch(tmp_path / "first"), Latch(tmp_path / "middle")

    @aktis.remote(max_retries=1)
    def dies_once(first: Latch, middle: Latch) -> Any:
        for number in range(6):
            if number == 4 and not first.is_open():
                middle.wait()
            yield bytes([number]) * 100_000

    generator = dies_once.remote(first, middle)
    items = [next(generator) for _ in range(4)]
    (pid,) = middle.wait_for_arrivals(1)
    first.open()
    os.kill(pid, signal.SIGKILL)
    items += list(generator)
    # A worker asks the node for them, which has heard by then of all that was dropped here.
    assert [get(identity.remote(item))[:1] for item in items] == [bytes([number]) for number in range(6)]
    assert [get(item)[:1] for item in items] == [bytes([number]) for number in range(6)]


def test_a_timeout_loses_no_item() -> None:
    """An item that arrived at the very moment when the time was up was taken, and dropped."""
    count, consumers = 6000, 4

    @aktis.remote(num_cpus=0)
    def gives(count: int) -> Any:
        for number in range(count):
            yield number
            time.sleep(0.0001)  # so that the consumer's time is up again and again

    taken: dict[int, list[Any]] = {}

    def consume(consumer: int, generator: Any) -> None:
        mine = taken[consumer] = []
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                mine.append(generator._next_sync(0.0001))
            except StopIteration:
                return
            except exceptions.GetTimeoutError:
                continue

    generators = [gives.remote(count) for _ in range(consumers)]
    threads = [threading.Thread(target=consume, args=pair) for pair in enumerate(generators)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert [get(taken[consumer]) for consumer in range(consumers)] == [list(range(count))] * consumers


def test_a_forked_child_leaves_the_generator_to_its_parent(run_script: Any) -> None:
    """A child of `os.fork()` that dropped its copy of a generator closed the one of its parent, whose loop
    ended early and without an error; and a child could take its parent's items."""
    done = run_script("""
        import gc, os
        import aktis
        aktis.init(num_cpus=1)
        @aktis.remote(_generator_backpressure_num_objects=2)
        def gives():
            yield from range(20)
        generator = gives.remote()
        found = [next(generator)]
        for takes in (False, True):
            pid = os.fork()
            if pid == 0:
                try:
                    if takes:
                        print("took", generator._next_sync(5), flush=True)
                except RuntimeError as error:
                    print("refused:", str(error).splitlines()[0], flush=True)
                finally:
                    del generator
                    gc.collect()
                    os._exit(0)
            os.waitpid(pid, 0)
        found += generator
        print(aktis.get(found, timeout=20))
    """)
    refused, taken = done.stdout.splitlines()
    assert refused.startswith("refused: this process was forked")
    assert taken == str(list(range(20)))


def test_items_between_other_answers() -> None:
    """The driver slept on in `next` or `get`, though items of one worker and answers of another had come."""

    @aktis.remote
    def gives(count: int) -> Any:
        for number in range(count):
            time.sleep(0.003)  # so that the driver has gone to sleep
            yield number

    generator = gives.remote(150)
    found = []
    while True:
        try:
            found.append(get(identity.remote(generator._next_sync(PATIENCE))))
        except StopIteration:
            break
    assert found == list(range(150))


# --- generators that are dropped or cancelled -----------------------------------------------------


def test_a_generator_that_is_dropped_between_two_attempts(tmp_path: Path) -> None:
    """The dead worker of the first attempt was told that nobody listens any more; that of the second waited
    for ever for somebody to take its items."""
    both, first, second, ended = (Latch(tmp_path / name) for name in ("both", "first", "second", "ended"))

    @aktis.remote
    def waits(latch: Latch) -> None:
        latch.wait()

    @aktis.remote(max_retries=1, _generator_backpressure_num_objects=2)
    def endless(first: Latch, second: Latch, ended: Latch) -> Any:
        try:
            if first.is_open():
                second.wait()
            while True:
                yield 1
                if not first.is_open():
                    first.wait()
        finally:
            ended.arrive()

    # There are two workers, so that the second attempt is not in the place of the first.
    ready = [waits.remote(both) for _ in range(2)]
    both.wait_for_arrivals(2)
    both.open()
    get(ready)
    generator = endless.remote(first, second, ended)
    assert get(next(generator)) == 1
    (pid,) = first.wait_for_arrivals(1)
    first.open()
    os.kill(pid, signal.SIGKILL)
    second.wait_for_arrivals(1)
    del generator
    gc.collect()
    second.open()
    # A worker that waits for its consumer lends its CPU, so only the end itself shows that it does not.
    assert ended.wait_for_arrivals(1) == second.arrivals()


def test_cancel_while_another_thread_waits_for_an_item(latch: Latch) -> None:
    """`cancel`, `repr` and the like of a generator waited until the thread that was in `next` came back."""

    @aktis.remote
    def stuck(latch: Latch) -> Any:
        yield 1
        latch.wait(2 * PATIENCE)

    generator = stuck.remote(latch)
    assert get(next(generator)) == 1
    latch.wait_for_arrivals(1)
    began = threading.Event()
    taken: list[Any] = []

    def take() -> None:
        began.set()
        taken.extend(generator)

    def cancel() -> None:
        assert not generator.is_finished()
        assert repr(generator)
        aktis.cancel(generator)

    taker, canceller = threading.Thread(target=take), threading.Thread(target=cancel)
    taker.start()
    assert began.wait(PATIENCE)
    wait_until(lambda: is_asleep(taker), what="the other thread to wait in next()")
    canceller.start()
    canceller.join(PATIENCE / 2)
    hangs = canceller.is_alive()
    latch.open()
    taker.join(PATIENCE)
    canceller.join(PATIENCE)
    assert not hangs
    assert not taker.is_alive()
    (last,) = taken
    with pytest.raises(exceptions.TaskCancelledError):
        get(last)


# --- the end --------------------------------------------------------------------------------------


def test_completed_fails_with_its_generator() -> None:
    """`completed()` of a generator that raised said that all was well."""

    @aktis.remote
    def fails() -> Any:
        yield 1
        raise ValueError("no more")

    generator = fails.remote()
    done = generator.completed()
    with pytest.raises(ValueError, match="no more"):
        get(done)
    assert len(list(generator)) == 2


def test_completed_outlives_its_generator(latch: Latch) -> None:
    """`completed()` of a generator that was dropped never became ready."""

    @aktis.remote
    def waits(latch: Latch) -> Any:
        yield 1
        latch.wait()

    generator = waits.remote(latch)
    done = generator.completed()
    latch.wait_for_arrivals(1)
    del generator
    gc.collect()
    with pytest.raises(exceptions.TaskCancelledError):
        get(done)


def test_completed_as_an_argument(latch: Latch) -> None:
    """A task that was given `completed()` before the end never started: "waits for 0 of its inputs"."""

    @aktis.remote
    def waits(latch: Latch) -> Any:
        yield 1
        latch.wait()

    generator = waits.remote(latch)
    then = identity.remote(generator.completed())
    latch.wait_for_arrivals(1)
    latch.open()
    assert get(then) is None
    assert get(list(generator)) == [1]


# --- attempts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_returns", [2, "dynamic"])
def test_generators_with_results_are_tried_again(num_returns: Any, tmp_path: Path) -> None:
    """`retry_exceptions` did nothing for generators whose items are results, or "dynamic": one attempt."""
    log = tmp_path / "attempts"

    @aktis.remote(max_retries=3, retry_exceptions=True, num_returns=num_returns)
    def fails(log: Path, until: int) -> Any:
        number = attempt(log)
        yield number
        if number < until:
            raise ValueError("not yet")
        yield number

    with pytest.raises(ValueError, match="not yet"):
        get(fails.remote(log, 100))
    assert attempts(log) == 4
    log.unlink()
    results = fails.remote(log, 3)
    assert get(list(get(results)) if num_returns == "dynamic" else results) == [3, 3]
