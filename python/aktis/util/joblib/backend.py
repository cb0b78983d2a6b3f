"""The backend itself: each batch of joblib's is a task."""

import queue
from typing import Any

from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from aktis.util._runtime import remote, start_thread

__all__ = ["AktisBackend"]


class AktisBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs joblib's batches as tasks. `remote_args` (or `ray_remote_args`) are options for them:

        joblib.parallel_backend("aktis", remote_args={"num_cpus": 2})

    joblib decides how many are under way, from `n_jobs`; the CPUs of the session decide how many run.
    """

    default_n_jobs = -1
    supports_retrieve_callback = True

    def __init__(
        self,
        *args: Any,
        remote_args: dict[str, Any] | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._remote_args = {**(ray_remote_args or {}), **(remote_args or {})}
        self._running: set[Any] = set()
        self._done: queue.SimpleQueue[Any] | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many jobs `n_jobs` stands for: -1 is one for each CPU, -2 one fewer, and so on."""
        import aktis

        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        if not aktis.is_initialized():
            aktis.init()
        cpus = int(aktis.cluster_resources().get("CPU", 1))
        return max(cpus + 1 + n_jobs, 1)

    def configure(
        self,
        n_jobs: int | None = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        **_ignored: Any,
    ) -> int:
        """joblib is about to submit: gets ready, and says how many jobs there will be."""
        jobs = self.effective_n_jobs(n_jobs)
        if jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._submit = remote(_run).options(**self._remote_args).remote
        self._done = queue.SimpleQueue()
        # joblib draws its next arguments inside of the callback, which may take long: not on the session's
        # thread.
        start_thread(_call_back, self._done)
        return jobs

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Starts a batch; `callback` gets its reference when it is done."""
        reference = self._submit(func)
        self._running.add(reference)
        done = self._done
        assert done is not None, "configured before"
        reference.add_done_callback(lambda ready: done.put((callback, ready)))
        return reference

    apply_async = submit

    def retrieve_result_callback(self, out: Any) -> Any:
        """The results of a batch, or its exception."""
        import aktis

        self._running.discard(out)
        return aktis.get(out)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Something failed: what is under way is not needed any more."""
        import aktis

        running, self._running = self._running, set()
        for reference in running:
            aktis.cancel(reference)

    def terminate(self) -> None:
        """joblib is done."""
        if self._done is not None:
            self._done.put(None)
            self._done = None
        self._running.clear()
        self.reset_batch_stats()


def _run(batch: Any) -> Any:
    return batch()


def _call_back(done: "queue.SimpleQueue[Any]") -> None:
    while (entry := done.get()) is not None:
        callback, reference = entry
        if callback is not None:
            callback(reference)
