"""The pool: actors that apply a function to many arguments, with the interface of `multiprocessing.Pool`."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError
from types import BuiltinFunctionType, FunctionType
from typing import Any, Self

from aktis.util._runtime import remote
from aktis.util.multiprocessing.results import AsyncResult, Callback, Failed, ResultIterator
from aktis.util.multiprocessing.worker import PoolWorker
from aktis.util.multiprocessing.workers import Chunk, Workers

__all__ = ["AsyncResult", "Pool", "TimeoutError"]

# Functions whose pickle a pool keeps.
_FUNCTIONS_MAX = 100


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
        start = remote(PoolWorker).options(**options).remote
        arguments = (initializer, tuple(initargs))
        self._processes = processes
        self._workers = Workers(processes, lambda: start(*arguments), maxtasksperchild)
        self._functions: dict[Any, Any] = {}

    # --- one call -----------------------------------------------------------------------------

    def apply(
        self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: dict[str, Any] | None = None
    ) -> Any:
        """`func(*args, **kwds)`, in a worker."""
        workers = self._workers
        items = [(tuple(args or ()), kwds or {})]
        worker = workers.take_idle()
        if worker is None:
            return self._apply(func, items, None, None).get()
        try:
            reference = worker.actor.run.remote(self._sendable(func), "call", items)
        except BaseException:
            workers.release(worker, dead=False)
            raise
        try:
            values, dead = workers.values(reference)
        except BaseException:
            # Ctrl-C: this thread goes, but the worker is not free before the call is done.
            reference.add_done_callback(lambda done: workers.release(worker, workers.values(done)[1]))
            raise
        workers.release(worker, dead)
        value = values if isinstance(values, Failed) else values[0]
        if isinstance(value, Failed):
            raise value.error
        return value

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
        return self._apply(func, [(tuple(args or ()), kwds or {})], callback, error_callback)

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
        return self._map(func, "one", list(iterable), chunksize, callback, error_callback)

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
        items = [tuple(arguments) for arguments in iterable]
        return self._map(func, "star", items, chunksize, callback, error_callback)

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
        self._workers.close()

    def terminate(self) -> None:
        """Ends the workers at once. Work that is not done fails."""
        self._workers.terminate()

    def join(self) -> None:
        """Waits until all work is done, or has failed. `close` or `terminate` comes first."""
        if not self._workers.closed:
            raise ValueError("Pool is still running")
        self._workers.done.wait()

    def __enter__(self) -> Self:
        self._workers.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def __del__(self) -> None:
        workers = getattr(self, "_workers", None)
        if workers is not None:
            workers.close()

    def __repr__(self) -> str:
        mode = "CLOSE" if self._workers.closed else "RUN"
        return f"<Pool state={mode} pool_size={self._processes}>"

    def __reduce__(self) -> Any:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    # --- inside -------------------------------------------------------------------------------

    def _apply(
        self,
        func: Callable[..., Any],
        items: list[Any],
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> AsyncResult:
        self._workers.require_open()
        job = AsyncResult(self, callback, error_callback, single=True)
        job.chunks_are(1)
        self._workers.submit([Chunk(job, 0, self._sendable(func), "call", items)])
        return job

    def _map(
        self,
        func: Callable[..., Any],
        how: str,
        items: list[Any],
        chunksize: int | None,
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> AsyncResult:
        self._workers.require_open()
        if chunksize is None:
            # As in the standard library: about four chunks for each worker.
            chunksize = max(1, -(-len(items) // (4 * self._processes)))
        job = AsyncResult(self, callback, error_callback)
        function = self._sendable(func)
        pieces = enumerate(_pieces(items, chunksize))
        chunks = [Chunk(job, index, function, how, piece) for index, piece in pieces]
        job.chunks_are(len(chunks))
        self._workers.submit(chunks)
        return job

    def _imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int, ordered: bool
    ) -> ResultIterator:
        self._workers.require_open()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        job = ResultIterator(self, ordered)
        self._workers.submit_lazily(job, self._sendable(func), _pieces(iterable, chunksize))
        return job

    def _sendable(self, func: Callable[..., Any]) -> Any:
        """The function, or a reference to it, so that it is pickled once and not for each chunk.

        As with remote functions, what it uses of its module is what was there when it was sent first. A
        closure or an object may change between calls, and is pickled again for each call of the pool.
        """
        import aktis

        if isinstance(func, BuiltinFunctionType | type):
            return func  # Sent by its name.
        if not isinstance(func, FunctionType) or func.__closure__ is not None:
            return aktis.put(func)
        reference = self._functions.get(func)
        if reference is None:
            if len(self._functions) >= _FUNCTIONS_MAX:
                self._functions.clear()
            reference = self._functions[func] = aktis.put(func)
        return reference


def _pieces(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while piece := list(itertools.islice(iterator, size)):
        yield piece
