"""The actor in which a training function runs, on a thread beside the one that streams its reports."""

import os
import queue
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aktis
from aktis.train import session
from aktis.train.checkpoint import Checkpoint
from aktis.train.session import Report, Session, StopTraining, TrainContext
from aktis.train.storage import Staging, write_files

REPORTS_AHEAD_MAX = 64
"""Reports that a worker may be ahead of the driver; then `report` waits."""

CALLS_MAX = 2
"""Calls at once: a question is answered while the training function runs."""


@dataclass(frozen=True)
class Place:
    """Where a worker is."""

    node_id: str
    address: str
    host: str
    pid: int
    sees_storage: bool

    def __str__(self) -> str:
        return f"node {self.node_id[:8]} ({self.host}), pid {self.pid}"


def node_address() -> str:
    """The address at which other nodes of the cluster reach this one."""
    node = aktis.get_runtime_context().get_node_id()
    addresses = [str(row["NodeManagerAddress"]) for row in aktis.nodes() if row["NodeID"] == node]
    return addresses[0] if addresses else aktis.util.get_node_ip_address()


@dataclass
class Job:
    """What a worker is to do."""

    function: Callable[..., object]
    arguments: tuple[Any, ...]
    """One configuration, or nothing."""
    context: TrainContext
    staging: Staging
    checkpoint: Checkpoint | None = None
    files: Any = None
    """A reference to the checkpoint's files (`Files`), for a worker that does not see the storage."""
    datasets: Mapping[str, Any] = field(default_factory=dict)
    lockstep: bool = False
    """Whether each report waits for the driver's answer."""


class Worker:
    """An actor that trains. `run` streams what the training function reports, and ends or fails with it."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        os.environ.update(environment or {})
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def place(self, staging: Staging) -> Place:
        """Where this is."""
        node = aktis.get_runtime_context().get_node_id()
        return Place(node, node_address(), socket.gethostname(), os.getpid(), staging.is_visible())

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function in the worker's process."""
        return function(*arguments)

    def answer(self, go_on: bool) -> None:
        """Lets the report go on that waits for it, or ends the training function there."""
        self._answers.put(go_on)

    def run(self, job: Job) -> Iterator[Report]:
        """Runs the training function to its end, and gives its reports meanwhile."""
        events: queue.Queue[Report | BaseException | None] = queue.Queue(REPORTS_AHEAD_MAX)
        thread = threading.Thread(target=self._train, args=(job, events), name="training", daemon=True)
        thread.start()
        while (event := events.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event

    def _train(self, job: Job, events: "queue.Queue[Report | BaseException | None]") -> None:
        def send(report: Report) -> None:
            events.put(report)
            if job.lockstep and not report.only_files and not self._answers.get():
                raise StopTraining

        try:
            checkpoint = job.checkpoint
            if checkpoint is not None and job.files is not None and not job.staging.is_visible():
                checkpoint = Checkpoint(tempfile.mkdtemp(prefix="checkpoint_"))
                write_files(checkpoint.path, aktis.get(job.files))
            data = {name: aktis.get(value) for name, value in job.datasets.items()}
            session.begin(Session(job.context, job.staging, send, checkpoint, data))
            job.function(*job.arguments)
            events.put(None)
        except StopTraining:
            events.put(None)
        except SystemExit as error:
            events.put(RuntimeError(f"the training function called sys.exit({error.code!r})"))
        except BaseException as error:
            events.put(error)
        finally:
            session.begin(None)


def worker_class() -> Any:
    """The actor class, for `.options(...)`. A worker is never restarted by itself: its run decides."""
    return aktis.remote(Worker).options(max_concurrency=CALLS_MAX, max_restarts=0)
