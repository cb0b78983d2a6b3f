"""The pool: actors that apply a function to many arguments.

Two threads serve it. The *feeder* takes chunks of arguments from the queue and gives each to the next idle
worker; the *collector* takes finished chunks, delivers their values, and frees their workers. So the
arguments of `imap` are drawn only as fast as workers are free, and a generator of arguments may wait for
earlier results.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import TimeoutError
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from pickle import PicklingError
from typing import Any, Self

from aktis.util._runtime import start_thread
from aktis.util.multiprocessing.results import AsyncResult, Callback, Failed, Job, ResultIterator
from aktis.util.multiprocessing.worker import PoolWorker

__all__ = ["AsyncResult", "Pool", "TimeoutError"]

Arguments = tuple[Sequence[Any], dict[str, Any]]


class Pool:
    """A pool of processes, as `multiprocessing.Pool`.

    `processes` is the number of actors; by default as many as there are CPUs. Each calls
    `initializer(*initargs)` first and, with `maxtasksperchild`, is replaced after that many chunks of work.
    `ray_remote_args` (or `remote_args`) are options for the actors, such as `{"num_cpus": 1}`. `context` is
    accepted and not used.

        pool = Pool(2)
        result = pool.map_async(square, range(1000))
        print(pool.apply(square, (12,)), result.get(timeout=10))
        pool.close()
        pool.join()

    Where the standard library would wait for ever because a process died, its work raises here.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        *,
        address: str | None = None,
        remote_args: dict[str, Any] | None = None,
    ) -> None:
        import aktis

        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild < 1):
            raise ValueError("maxtasksperchild must be a positive int or None")
        wanted = ray_address or address
        if wanted is not None and not aktis.is_initialized():
            aktis.init(address=wanted)
        if processes is None:
            processes = max(1, int(aktis.cluster_resources().get("CPU", 1)))
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")

        # An actor that says nothing about CPUs could only be placed on a free one; a pool may be larger
        # than the machine.
        options = {"num_cpus": 0, **(ray_remote_args or {}), **(remote_args or {})}
        start = aktis.remote(PoolWorker).options(**options).remote
        arguments = (initializer, tuple(initargs))
        self._processes = processes
        self._state = _State(processes, lambda: _Worker(start(*arguments), maxtasksperchild))
        self._threads = [start_thread(serve, self._state) for serve in (_feed, _collect)]

    # --- one call -----------------------------------------------------------------------------

    def apply(
        self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: dict[str, Any] | None = None
    ) -> Any:
        """`func(*args, **kwds)`, in a worker."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: dict[str, Any] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Like `apply`, but returns at once. The callbacks get the value, or the exception, when there is
        one; they run on a thread of the pool and should be short."""
        job = AsyncResult(self, callback, error_callback, single=True)
        self._submit(job, func, [[(tuple(args or ()), kwds or {})]])
        return job

    # --- many calls, one result ---------------------------------------------------------------

    def map(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[Any]:
        """`[func(item) for item in iterable]`, spread over the workers in chunks of `chunksize` items."""
        result: list[Any] = self.map_async(func, iterable, chunksize).get()
        return result

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Like `map`, but returns at once."""
        return self._map(func, [((item,), {}) for item in iterable], chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """`[func(*items) for items in iterable]`."""
        result: list[Any] = self.starmap_async(func, iterable, chunksize).get()
        return result

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Like `starmap`, but returns at once."""
        return self._map(
            func, [(tuple(items), {}) for items in iterable], chunksize, callback, error_callback
        )

    # --- many calls, one result after another -------------------------------------------------

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> ResultIterator:
        """An iterator over `func(item)` in order; items are drawn as workers become free."""
        return self._imap(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> ResultIterator:
        """Like `imap`, with the results as they come."""
        return self._imap(func, iterable, chunksize, ordered=False)

    # --- life ---------------------------------------------------------------------------------

    def close(self) -> None:
        """No more work is accepted; what was submitted is done, then the workers end."""
        self._state.close()

    def terminate(self) -> None:
        """Ends the workers at once. Work that is not done fails."""
        self._state.terminate()

    def join(self) -> None:
        """Waits until the workers have ended. `close` or `terminate` comes first."""
        if not self._state.closed:
            raise ValueError("Pool is still running")
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        self._state.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def __del__(self) -> None:
        # The threads know the state and not the pool, so a pool that nobody uses comes here.
        state = getattr(self, "_state", None)
        if state is not None:
            state.close()

    def __repr__(self) -> str:
        mode = "CLOSE" if self._state.closed else "RUN"
        return f"<Pool state={mode} pool_size={self._processes}>"

    def __reduce__(self) -> Any:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def _map(
        self,
        func: Callable[..., Any],
        items: list[Arguments],
        chunksize: int | None,
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> AsyncResult:
        if chunksize is None:
            # As in the standard library: about four chunks for each worker.
            chunksize = max(1, -(-len(items) // (4 * self._processes)))
        job = AsyncResult(self, callback, error_callback)
        self._submit(job, func, _chunks(items, chunksize))
        return job

    def _imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int, ordered: bool
    ) -> ResultIterator:
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        job = ResultIterator(self, ordered)
        self._submit(job, func, _chunks((((item,), {}) for item in iterable), chunksize))
        return job

    def _submit(self, job: Job, func: Callable[..., Any], chunks: Iterable[list[Arguments]]) -> None:
        import aktis

        self._state.require_open()
        # A function is sent once for all chunks; for a single one, the way over the store would be longer.
        single = isinstance(chunks, list) and len(chunks) == 1
        self._state.jobs.put((job, func if single else aktis.put(func), iter(chunks)))


class _Worker:
    """An actor of the pool, and how many chunks it may still be given."""

    def __init__(self, actor: Any, chunks_left: int | None) -> None:
        self.actor = actor
        self.chunks_left = chunks_left


class _State:
    """What the pool and its two threads share."""

    def __init__(self, processes: int, new_worker: Callable[[], _Worker]) -> None:
        self.new_worker = new_worker
        self.workers = {new_worker() for _ in range(processes)}
        self.idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self.idle.put(worker)
        self.jobs: queue.SimpleQueue[tuple[Job, Any, Iterator[list[Arguments]]] | None] = queue.SimpleQueue()
        self.finished: queue.SimpleQueue[tuple[Job, int, _Worker | None, Any] | None] = queue.SimpleQueue()
        """Chunks that are done, by the reference to their values; None after the last."""
        self.started = 0
        self.closed = False
        self.terminated = False
        self.lock = threading.Lock()

    def require_open(self) -> None:
        if self.closed:
            raise ValueError("Pool not running")

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self.closed = True
                self.jobs.put(None)

    def terminate(self) -> None:
        self.close()
        with self.lock:
            self.terminated = True
            workers = list(self.workers)
        for worker in workers:
            _kill(worker.actor)


def _feed(state: _State) -> None:
    """The feeder: gives chunks to idle workers until the pool is closed."""
    started = 0
    while (entry := state.jobs.get()) is not None:
        job, function, chunks = entry
        index = 0
        while True:
            failed = _terminated() if state.terminated else None
            chunk: list[Arguments] = []
            try:
                chunk = [] if failed else next(chunks)
            except StopIteration:
                break
            except Exception as error:
                failed = error  # The iterable of `imap` raised.
            if failed is not None:
                # It comes in place of a chunk, and is the last result.
                state.finished.put((job, index, None, Failed(failed)))
            else:
                _give(state, job, index, function, chunk)
            started, index = started + 1, index + 1
            if failed is not None:
                break
        job.chunks_are(index)
        del job, function, chunks, entry  # Nothing that is done is kept alive while the thread waits.
    state.started = started
    state.finished.put(None)


def _give(state: _State, job: Job, index: int, function: Any, chunk: list[Arguments]) -> None:
    worker = state.idle.get()
    try:
        reference = worker.actor.run.remote(function, chunk)
    except Exception as error:
        # The arguments cannot be pickled, or the session has ended.
        state.finished.put((job, index, worker, Failed(error)))
        return
    reference.add_done_callback(lambda done: state.finished.put((job, index, worker, done)))


def _collect(state: _State) -> None:
    """The collector: delivers values and frees workers until all that was started is done."""
    collected = 0
    fed = False
    while not (fed and collected == state.started):
        entry = state.finished.get()
        if entry is None:
            fed = True
            continue
        job, index, worker, outcome = entry
        values, replace = _values(state, outcome)
        collected += 1
        if worker is not None:
            _free(state, worker, replace)
        try:
            job.deliver(index, values)
        except Exception:
            # A callback of the user raised. The standard library's thread would end here, and all that
            # waits hang.
            import sys

            sys.excepthook(*sys.exc_info())
        del entry, job, worker, outcome, values
    state.workers.clear()
    while not state.idle.empty():
        # With its last handle gone, an actor ends by itself, after the handlers that it registered with
        # `atexit`.
        state.idle.get()


def _values(state: _State, outcome: Any) -> tuple[list[Any] | Failed, bool]:
    """The values of a chunk, and whether its worker is to be replaced."""
    import aktis
    from aktis.exceptions import ActorDiedError

    if isinstance(outcome, Failed):
        return outcome, False
    try:
        values: list[Any] = aktis.get(outcome)
        return values, False
    except ActorDiedError as error:
        return Failed(_terminated() if state.terminated else error), True
    except Exception as error:
        # `PoolWorker.run` returns all exceptions of the function, so this is about sending arguments or
        # results.
        cause = getattr(error, "cause", None)
        if isinstance(cause, PicklingError) or "pickle" in str(cause):
            unsent = MaybeEncodingError(cause, "the result")
            unsent.__cause__ = error
            return Failed(unsent), False
        return Failed(error), False


def _free(state: _State, worker: _Worker, replace: bool) -> None:
    if worker.chunks_left is not None:
        worker.chunks_left -= 1
        replace = replace or worker.chunks_left == 0
    with state.lock:
        if replace and not state.terminated:
            state.workers.discard(worker)
            worker = state.new_worker()
            state.workers.add(worker)
    state.idle.put(worker)


def _kill(actor: Any) -> None:
    import aktis

    try:
        aktis.kill(actor)
    except Exception:
        pass  # The session has ended, and the actor with it.


def _terminated() -> Exception:
    return RuntimeError("the pool was terminated before this was done")


def _chunks(items: Iterable[Arguments], size: int) -> Iterator[list[Arguments]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
