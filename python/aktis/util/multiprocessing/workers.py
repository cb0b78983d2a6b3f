"""The workers of a pool and the work for them: who is idle, what waits, what runs, and when all is done.

A chunk goes to an idle worker at once, or waits. When a worker is done it is given the next chunk right
away, on the session's thread for callbacks. Only what the user's code may hold up has threads of its own:
the *feeder* draws the arguments of `imap`, and the *announcer* calls callbacks.
"""

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from pickle import PicklingError
from typing import Any

from aktis.util._runtime import runtime, start_thread
from aktis.util.multiprocessing.results import Failed, FailedSome, Job


@dataclass(slots=True)
class Chunk:
    """A piece of work: `items` are the arguments of several calls (see `PoolWorker.run` for `how`)."""

    job: Job
    index: int
    function: Any
    how: str
    items: list[Any]


class Worker:
    """An actor of the pool, and how many chunks it may still be given."""

    def __init__(self, actor: Any, chunks_left: int | None) -> None:
        self.actor = actor
        self.chunks_left = chunks_left


class Workers:
    """What a pool, its threads and the callbacks of its calls share. It does not know the pool, which can
    end by itself when nobody uses it."""

    def __init__(self, count: int, new_actor: Callable[[], Any], chunks_each: int | None) -> None:
        self.count = count
        self.closed = False
        self.terminated = False
        self.done = threading.Event()
        self._session = runtime()
        self._new_actor = new_actor
        self._chunks_each = chunks_each
        # Reentrant, because a pool may be collected, and closed, at any moment.
        self._changed = threading.Condition(threading.RLock())
        self._all = {Worker(new_actor(), chunks_each) for _ in range(count)}
        self._idle = list(self._all)
        self._pending: deque[Chunk] = deque()
        self._open = 0
        """Chunks that are not delivered yet, and iterables that are not used up."""
        self._feed: queue.SimpleQueue[tuple[Job, Any, Iterator[list[Any]]] | None] | None = None
        self._announcements: queue.SimpleQueue[tuple[Chunk, Any] | None] | None = None

    # --- work ---------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raises ValueError after `close`."""
        if self.closed:
            raise ValueError("Pool not running")

    def submit(self, chunks: list[Chunk]) -> None:
        """Has the chunks done, in order."""
        with self._changed:
            self.require_open()
            self._open += len(chunks)
            self._pending.extend(chunks)
        self._start_pending()

    def submit_lazily(self, job: Job, function: Any, chunks: Iterator[list[Any]]) -> None:
        """Has chunks of single arguments done, which are drawn as workers become free."""
        with self._changed:
            self.require_open()
            self._open += 1
            if self._feed is None:
                self._feed = queue.SimpleQueue()
                start_thread(_feed, self, self._feed)
            self._feed.put((job, function, chunks))

    def take_idle(self) -> Worker | None:
        """An idle worker for one call, after which it is to be given to `release`."""
        with self._changed:
            self.require_open()
            if not self._idle or self._pending:
                return None
            self._open += 1
            return self._idle.pop()

    def release(self, worker: Worker, dead: bool) -> None:
        """The call for which a worker was taken is done."""
        self._free(worker, dead)
        self._finish()

    def values(self, reference: Any) -> tuple[list[Any] | Failed, bool]:
        """What a chunk gave, and whether its worker is dead."""
        import aktis
        from aktis.exceptions import ActorDiedError

        try:
            values, any_failed = aktis.get(reference)
        except ActorDiedError as error:
            return Failed(terminated() if self.terminated else error), True
        except Exception as error:
            return Failed(_unsent(error)), False
        return (FailedSome(values) if any_failed else values), False

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """No more work is accepted."""
        with self._changed:
            self.closed = True
            if self._feed is not None:
                self._feed.put(None)
                self._feed = None
        self._end_if_done()

    def terminate(self) -> None:
        """Kills all workers. What is not done fails."""
        with self._changed:
            self.terminated = True
            pending, self._pending = self._pending, deque()
            workers = list(self._all)
            self._changed.notify_all()
        for worker in workers:
            _kill(worker)
        for chunk in pending:
            self._deliver(chunk, Failed(terminated()))
        self.close()

    # --- inside -------------------------------------------------------------------------------

    def _start_pending(self) -> None:
        """Gives what waits to those who are idle."""
        while True:
            with self._changed:
                if not self._idle or not self._pending:
                    return
                worker, chunk = self._idle.pop(), self._pending.popleft()
            try:
                reference = worker.actor.run.remote(chunk.function, chunk.how, chunk.items)
            except Exception as error:
                # The arguments cannot be pickled, or the session has ended.
                with self._changed:
                    self._idle.append(worker)
                self._deliver(chunk, Failed(error))
                continue
            reference.add_done_callback(partial(self._on_done, worker, chunk))

    def _on_done(self, worker: Worker, chunk: Chunk, reference: Any) -> None:
        values, dead = self.values(reference)
        self._free(worker, dead)
        self._deliver(chunk, values)

    def _free(self, worker: Worker, dead: bool) -> None:
        if worker.chunks_left is not None:
            worker.chunks_left -= 1
        with self._changed:
            is_needed = not self.terminated and (not self.closed or self._open > 1)
        if is_needed and (dead or worker.chunks_left == 0):
            worker = self._replaced(worker)
        with self._changed:
            self._idle.append(worker)
            self._changed.notify_all()
        self._start_pending()

    def _replaced(self, worker: Worker) -> Worker:
        """Another worker in place of this one. With its last handle gone, an actor ends by itself, and its
        `atexit` functions are called."""
        self._session.enter()
        try:
            fresh = Worker(self._new_actor(), self._chunks_each)
        except Exception:
            return worker  # The session has ended. What waits fails at once with this one.
        finally:
            self._session.leave()
        with self._changed:
            self._all.discard(worker)
            self._all.add(fresh)
            is_late = self.terminated
        if is_late:
            _kill(fresh)
        return fresh

    def _deliver(self, chunk: Chunk, values: list[Any] | Failed) -> None:
        if not chunk.job.has_callbacks:
            chunk.job.deliver(chunk.index, values)
            self._finish()
            return
        with self._changed:
            if self._announcements is None:
                self._announcements = queue.SimpleQueue()
                self._session.enter()
                try:
                    start_thread(_announce, self, self._announcements)
                finally:
                    self._session.leave()
            self._announcements.put((chunk, values))

    def _finish(self) -> None:
        with self._changed:
            self._open -= 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        with self._changed:
            if not self.closed or self._open or self.done.is_set():
                return
            self._all.clear()
            self._idle.clear()
            if self._announcements is not None:
                self._announcements.put(None)
            self.done.set()

    def _wait_for_need(self) -> None:
        """Waits until another chunk would soon find a worker."""
        with self._changed:
            self._changed.wait_for(lambda: self.terminated or len(self._pending) < self.count)


def _feed(workers: Workers, jobs: "queue.SimpleQueue[tuple[Job, Any, Iterator[list[Any]]] | None]") -> None:
    """The feeder."""
    while (entry := jobs.get()) is not None:
        job, function, chunks = entry
        index = 0
        failed: Exception | None = None
        while failed is None:
            workers._wait_for_need()
            items: list[Any] = []
            try:
                if workers.terminated:
                    failed = terminated()
                else:
                    items = next(chunks)
            except StopIteration:
                break
            except Exception as error:
                failed = error  # The iterable raised: that comes in place of its next chunk, and is the last.
            chunk = Chunk(job, index, function, "one", items)
            index += 1
            with workers._changed:
                workers._open += 1
                if failed is None:
                    workers._pending.append(chunk)
            if failed is None:
                workers._start_pending()
            else:
                workers._deliver(chunk, Failed(failed))
            del chunk
        job.chunks_are(index)
        workers._finish()
        del job, function, chunks, entry  # Nothing that is done is kept alive while the thread waits.


def _announce(workers: Workers, announcements: "queue.SimpleQueue[tuple[Chunk, Any] | None]") -> None:
    """The announcer."""
    while (entry := announcements.get()) is not None:
        chunk, values = entry
        try:
            chunk.job.deliver(chunk.index, values)
        except Exception:
            # A callback raised. In the standard library that would end the thread, and all that waits would
            # hang.
            sys.excepthook(*sys.exc_info())
        workers._finish()
        del chunk, values, entry


def _kill(worker: Worker) -> None:
    import aktis

    try:
        aktis.kill(worker.actor)
    except Exception:
        pass  # The session has ended, and the actor with it.


def terminated() -> Exception:
    """What work raises that a terminated pool did not do."""
    return RuntimeError("the pool was terminated before this was done")


def _unsent(error: Exception) -> Exception:
    """`PoolWorker.run` returns all exceptions of the function, so this is about sending arguments or
    results."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, PicklingError) and "pickle" not in str(cause):
        return error
    unsent: Exception = MaybeEncodingError(cause, "the result")
    unsent.__cause__ = error
    return unsent
