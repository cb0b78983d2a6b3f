"""What a training function sees of its run: its rank, its data, the last checkpoint; and how it reports."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aktis.train.checkpoint import Checkpoint
from aktis.train.data import DatasetShard
from aktis.train.storage import Part, Staging

__all__ = ["TrainContext", "get_checkpoint", "get_context", "get_dataset_shard", "report"]


class StopTraining(BaseException):
    """Ends a training function whose run is over. No error: a BaseException, so `except Exception` lets it
    pass."""


@dataclass(frozen=True)
class TrainContext:
    """Where a training function runs. `aktis.train.get_context()` gives it."""

    world_size: int = 1
    world_rank: int = 0
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    experiment_name: str = ""
    run_folder: str = ""
    trial_id: str | None = None
    trial_name: str | None = None
    trial_resources: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def get_world_size(self) -> int:
        """How many workers train."""
        return self.world_size

    def get_world_rank(self) -> int:
        """The number of this worker, from 0."""
        return self.world_rank

    def get_local_rank(self) -> int:
        """The number of this worker among those of its node, from 0."""
        return self.local_rank

    def get_local_world_size(self) -> int:
        """How many workers are on this node."""
        return self.local_world_size

    def get_node_rank(self) -> int:
        """The number of this node among those that train, from 0."""
        return self.node_rank

    def get_experiment_name(self) -> str:
        """The name of the run, or of the experiment that the trial belongs to."""
        return self.experiment_name

    def get_storage(self) -> str:
        """The folder of the run, as the driver sees it."""
        return self.run_folder

    def get_trial_dir(self) -> str:
        """The folder of the run or the trial, as the driver sees it."""
        return self.run_folder

    def get_trial_id(self) -> str | None:
        """The id of the trial; None in a run of `aktis.train`."""
        return self.trial_id

    def get_trial_name(self) -> str | None:
        """The name of the trial; None in a run of `aktis.train`."""
        return self.trial_name

    def get_trial_resources(self) -> Mapping[str, float]:
        """What the trial holds."""
        return self.trial_resources

    def get_metadata(self) -> Mapping[str, Any]:
        """What the trainer was given as `metadata`."""
        return self.metadata


@dataclass
class Report:
    """What `report` sends to the driver."""

    rank: int
    metrics: dict[str, Any]
    part: Part | None = None
    only_files: bool = False
    """Whether it brings a checkpoint that belongs to the report before, and no metrics."""


@dataclass
class Session:
    """The state of a training function in its worker."""

    context: TrainContext
    staging: Staging
    send: Callable[[Report], None]
    """Hands a report over. Raises `StopTraining` when the run is over."""
    checkpoint: Checkpoint | None = None
    datasets: Mapping[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None) -> None:
        with self.lock:
            part = None
            if checkpoint is not None:
                part = self.staging.stage(checkpoint, self.context.world_rank, name)
            self.send(Report(self.context.world_rank, metrics, part))

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Hands over a checkpoint that belongs to the last report."""
        with self.lock:
            part = self.staging.stage(checkpoint, self.context.world_rank, None)
            self.send(Report(self.context.world_rank, {}, part, only_files=True))


_session: Session | None = None


def begin(session: Session | None) -> None:
    """Makes the session the one of this process."""
    global _session
    _session = session


def current(what: str) -> Session:
    """The session of this process."""
    if _session is None:
        raise RuntimeError(
            f"`{what}` was called outside of a training function\n"
            "hint: call it in the function that a trainer or a tuner runs"
        )
    return _session


def in_session() -> bool:
    """Whether this process runs a training function."""
    return _session is not None


def report(
    metrics: Mapping[str, Any],
    *,
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
) -> None:
    """Reports metrics, and a checkpoint if there is one.

    Each worker calls it equally often. The files of a checkpoint are copied before it returns. The checkpoint
    exists as soon as all workers have made the same report; their files are merged.

        aktis.train.report({"epoch": epoch, "loss": loss})
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f"`metrics` must be a dictionary, got {metrics!r}\nhint: report({{'loss': 0.1}})")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"`checkpoint` must be a Checkpoint, got {checkpoint!r}\nhint: Checkpoint.from_directory(folder)"
        )
    current("report").report({str(k): plain(v) for k, v in metrics.items()}, checkpoint, checkpoint_dir_name)


def plain(value: Any) -> Any:
    """A Python number for a number of numpy or torch, so that the driver needs neither."""
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return value


def get_context() -> TrainContext:
    """Where the calling training function runs: its rank, the number of workers, the name of the run."""
    return current("get_context").context


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to start from: the last one before a failure, or `resume_from_checkpoint`."""
    return current("get_checkpoint").checkpoint


def get_dataset_shard(dataset_name: str = "train") -> DatasetShard:
    """This worker's part of a dataset of the trainer. All parts have the same length."""
    session = current("get_dataset_shard")
    if dataset_name not in session.datasets:
        known = ", ".join(sorted(session.datasets)) or "none"
        raise KeyError(
            f"there is no dataset {dataset_name!r}; there is {known}"
            "\nhint: name it in `datasets=` of the trainer"
        )
    context = session.context
    return DatasetShard(session.datasets[dataset_name], context.world_rank, context.world_size)
