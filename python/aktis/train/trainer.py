"""Data-parallel training: one function in many workers, restarted from a checkpoint after a failure."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

import aktis
from aktis.exceptions import AktisError
from aktis.train.checkpoint import Checkpoint, read_pickle, replace_file
from aktis.train.config import RunConfig, ScalingConfig
from aktis.train.console import Progress
from aktis.train.data import length_of
from aktis.train.group import NoRoomError, WorkerFailed, WorkerGroup, is_out_of_memory
from aktis.train.result import Result
from aktis.train.session import Report, TrainContext
from aktis.train.storage import Part, RunFolder

__all__ = ["Backend", "DataParallelTrainer", "TrainingFailedError"]

TRAINER = "trainer.pkl"
"""The file in a run's folder that `restore` reads."""


class TrainingFailedError(AktisError):
    """A run failed more often than `FailureConfig.max_failures` allows.

    The text names the worker and the reason.

    `worker_failures` has the exception of each worker that failed, by rank.
    """

    def __init__(self, message: str, worker_failures: Mapping[int, BaseException] | None = None) -> None:
        super().__init__(message)
        self.worker_failures = dict(worker_failures or {})


class Backend:
    """What is set up in the workers around the training function. This one does nothing."""

    def on_start(self, group: WorkerGroup) -> None:
        """The workers are there, and the training function has not begun."""

    def on_end(self, group: WorkerGroup) -> None:
        """The training function has ended in all workers."""


class DataParallelTrainer:
    """Runs one function in all workers of a run.

        def train_loop(config):
            rank = aktis.train.get_context().get_world_rank()
            aktis.train.report({"rank": rank, "rate": config["rate"]})

        trainer = DataParallelTrainer(
            train_loop,
            train_loop_config={"rate": 0.1},
            scaling_config=ScalingConfig(num_workers=2),
        )
        result = trainer.fit()

    `datasets` are put into the object store once; each worker gets its part with `get_dataset_shard`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
        backend: Backend | None = None,
    ) -> None:
        check_loop(train_loop_per_worker)
        for name, data in (datasets or {}).items():
            length_of(data)
            if not isinstance(name, str):
                raise TypeError(
                    f"the name of a dataset must be a text, got {name!r}"
                    '\nhint: give a dict such as {"train": dataset}'
                )
        for argument, value, kind in (
            ("scaling_config", scaling_config, ScalingConfig),
            ("run_config", run_config, RunConfig),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
        ):
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"`{argument}` must be a {kind.__name__}, got {value!r}"
                    "\nhint: make one by its constructor, or leave the argument out"
                )
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = dict(train_loop_config or {})
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.datasets = dict(datasets or {})
        self.resume_from_checkpoint = resume_from_checkpoint
        self.metadata = dict(metadata or {})
        self.backend = backend or Backend()
        self.on_report: Callable[[dict[str, Any], Checkpoint | None], None] | None = None
        """Called in the driver after each report of worker 0 and each checkpoint."""

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is a run in this folder that `restore` can go on with."""
        return os.path.isfile(os.path.join(os.path.expanduser(os.fspath(path)), TRAINER))

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., object] | None = None,
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        datasets: Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
    ) -> Self:
        """The trainer of a run that was interrupted; its `fit` goes on from the last checkpoint.

        Datasets and callbacks are not stored with a run; datasets have to be given again.
        """
        import dataclasses

        folder = os.path.abspath(os.path.expanduser(os.fspath(path)))
        if not cls.can_restore(folder):
            raise ValueError(
                f"there is no run in {folder}\nhint: the folder is `storage_path/name` of the run"
            )
        trainer = read_pickle(os.path.join(folder, TRAINER), "the trainer of the run")
        if not isinstance(trainer, cls):
            raise TypeError(
                f"the run in {folder} is of a {type(trainer).__name__}, not of a {cls.__name__}"
                "\nhint: restore it by the class that started it"
            )
        if train_loop_per_worker is not None:
            check_loop(train_loop_per_worker)
            trainer.train_loop_per_worker = train_loop_per_worker
        if train_loop_config is not None:
            trainer.train_loop_config = dict(train_loop_config)
        if scaling_config is not None:
            trainer.scaling_config = scaling_config
        trainer.datasets = dict(datasets or {})
        base, name = os.path.split(folder)
        trainer.run_config = dataclasses.replace(trainer.run_config, storage_path=base, name=name)
        return trainer

    def fit(self) -> Result:
        """Trains to the end, and gives the last metrics and the checkpoints.

        After a failure it starts again from the last checkpoint, up to `FailureConfig.max_failures` times;
        then it raises `TrainingFailedError`. A run of the same name that was interrupted goes on.
        """
        folder = RunFolder(self.run_config.folder(type(self).__name__), self.run_config.checkpoint_config)
        continued = folder.open()
        self._store(folder)
        datasets = {name: aktis.put(data) for name, data in self.datasets.items()}
        progress = Progress(self.run_config.verbose)
        failures = 0
        if not continued and self.resume_from_checkpoint is not None:
            self.resume_from_checkpoint.verify()
        try:
            while True:
                latest = folder.latest()
                folder.rewind(latest)
                try:
                    self._attempt(folder, latest or self.resume_from_checkpoint, datasets, progress)
                    break
                except WorkerFailed as error:
                    failures += 1
                    if not self.run_config.failure_config.allows(failures):
                        raise TrainingFailedError(
                            failed_text(error, failures, folder), error.failures
                        ) from error.cause
                    progress.note(f"{error}\nthe run starts again from {folder.latest() or 'its beginning'}")
                except NoRoomError as error:
                    raise TrainingFailedError(str(error)) from None
        finally:
            progress.close()
        folder.close()
        return Result.of_folder(folder, config=self.train_loop_config, failures=failures)

    def _store(self, folder: RunFolder) -> None:
        """Writes the trainer down for `restore`, without what belongs to this process: data and callbacks."""
        import copy
        import dataclasses

        import cloudpickle

        stored = copy.copy(self)
        stored.datasets, stored.on_report = {}, None
        stored.run_config = dataclasses.replace(self.run_config, callbacks=())
        try:
            replace_file(os.path.join(folder.path, TRAINER), cloudpickle.dumps(stored))
        except (TypeError, AttributeError, ValueError) as error:
            raise TypeError(
                f"the training function or its configuration cannot be pickled: {error}\n"
                "hint: `aktis.util.inspect_serializability` says which member it is"
            ) from error

    def _attempt(
        self, folder: RunFolder, checkpoint: Checkpoint | None, datasets: dict[str, Any], progress: Progress
    ) -> None:
        """Trains once, until the function has ended in all workers or one has failed."""
        context = TrainContext(
            experiment_name=os.path.basename(folder.path), run_folder=folder.path, metadata=self.metadata
        )
        reports = Reports(folder, self._reported(folder, progress))
        with WorkerGroup(self.scaling_config, folder.staging, context) as group:
            self.backend.on_start(group)
            progress.workers = len(group.members)
            reports.expect(len(group.members))
            arguments = (dict(self.train_loop_config),) if takes_config(self.train_loop_per_worker) else ()
            for report in group.run(self.train_loop_per_worker, arguments, checkpoint, datasets):
                reports.add(report)
            reports.flush()
            self.backend.on_end(group)

    def _reported(
        self, folder: RunFolder, progress: Progress
    ) -> "Callable[[dict[str, Any], Checkpoint | None], None]":
        warned: set[str] = set()

        def reported(metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
            if checkpoint is None:
                warn_of_nan(metrics, len(folder.history), warned)
                progress.show(len(folder.history), metrics)
                for callback in filter(callable, self.run_config.callbacks):
                    callback(metrics)
            if self.on_report is not None:
                self.on_report(metrics, checkpoint)

        return reported

    def __repr__(self) -> str:
        name = getattr(self.train_loop_per_worker, "__name__", repr(self.train_loop_per_worker))
        return f"{type(self).__name__}({name}, {self.scaling_config})"


class Reports:
    """Puts the reports of all workers together: the n-th of each belong together."""

    def __init__(
        self, folder: RunFolder, reported: "Callable[[dict[str, Any], Checkpoint | None], None]"
    ) -> None:
        self._folder = folder
        self._reported = reported
        self._before = len(folder.history)
        self._counts: list[int] = []
        self._parts: dict[int, list[Part]] = {}
        self._metrics: dict[int, dict[str, Any]] = {}

    def expect(self, workers: int) -> None:
        """There are so many workers."""
        self._counts = [0] * workers

    def add(self, report: Report) -> None:
        """Takes a report. That of worker 0 is recorded at once; a checkpoint is made when all have come."""
        number = self._counts[report.rank]
        self._counts[report.rank] += 1
        if report.part is not None:
            self._parts.setdefault(number, []).append(report.part)
        if report.rank == 0:
            self._metrics[number] = report.metrics
            self._folder.append(report.metrics)
            self._reported(report.metrics, None)
        if min(self._counts) > number:
            self._commit(number)

    def flush(self) -> None:
        """The training function has ended everywhere: what some workers did not report is not awaited."""
        for number in sorted(self._parts):
            self._commit(number)

    def _commit(self, number: int) -> None:
        metrics = self._metrics.pop(number, {})
        if parts := self._parts.pop(number, None):
            checkpoint = self._folder.commit(parts, metrics, self._before + number + 1)
            self._reported(metrics, checkpoint)


def check_loop(function: object) -> None:
    """Refuses what cannot be a training function."""
    if not callable(function):
        raise TypeError(
            f"`train_loop_per_worker` must be a function, got {function!r}"
            "\nhint: give the function itself, without calling it"
        )
    if required_parameters(function) > 1:
        raise TypeError(
            f"the function {getattr(function, '__name__', function)!r} takes more than one argument\n"
            "hint: it is called with `train_loop_config`, or with nothing"
        )


def required_parameters(function: Callable[..., object]) -> int:
    """How many positional arguments the function cannot do without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


def takes_config(function: Callable[..., object]) -> bool:
    """Whether the function wants the configuration."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(parameter.kind in kinds for parameter in parameters)


def failed_text(error: WorkerFailed, failures: int, folder: RunFolder) -> str:
    """What a run says that gives up."""
    text = str(error)
    if failures > 1:
        text = f"the run failed {failures} times, at last because {text}"
    saved = folder.saved[-1].checkpoint.path if folder.saved else None
    kept = f"its last checkpoint is {saved}" if saved else "it has saved no checkpoint"
    hint = "FailureConfig(max_failures=N) lets it start again from its last checkpoint"
    if is_out_of_memory(error.cause):
        hint = (
            "use smaller batches or a smaller model, or place fewer workers on a node (resources_per_worker)"
        )
    return f"{text}\n{kept}\nhint: {hint}"


def warn_of_nan(metrics: Mapping[str, Any], report: int, warned: set[str]) -> None:
    """Warns of each metric once that is NaN: training goes on, but learns nothing any more."""
    for name, value in metrics.items():
        if isinstance(value, float) and value != value and name not in warned:
            warned.add(name)
            warnings.warn(
                f"the run reports NaN for {name!r} since report {report}\n"
                "hint: it has diverged: lower the learning rate, and look for divisions and logarithms",
                stacklevel=2,
            )
