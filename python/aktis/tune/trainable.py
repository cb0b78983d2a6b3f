"""What a trial runs: a function, a subclass of `Trainable`, or a trainer of `aktis.train`."""

import contextlib
import dataclasses
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aktis
from aktis.train import session
from aktis.train.checkpoint import Checkpoint
from aktis.train.config import CheckpointConfig, ScalingConfig
from aktis.train.session import StopTraining
from aktis.train.trainer import DataParallelTrainer, takes_config

__all__ = ["PlacementGroupFactory", "Trainable", "with_parameters", "with_resources"]

STATE = "trainable.pkl"
"""The file of a checkpoint for which `save_checkpoint` returned a dictionary."""


class Trainable:
    """A trial as a class: `setup` once, then `step` until a result has `done` or the tuner ends it.

        class Net(tune.Trainable):
            def setup(self, config):
                self.weight = config["start"]

            def step(self):
                self.weight *= 0.9
                return {"loss": self.weight}

            def save_checkpoint(self, folder):
                return {"weight": self.weight}

            def load_checkpoint(self, state):
                self.weight = state["weight"]

    `save_checkpoint` writes files into the folder, or returns a dictionary; `load_checkpoint` gets the
    folder, or the dictionary.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.config = config or {}
        self.iteration = 0

    @property
    def training_iteration(self) -> int:
        """How many steps were made."""
        return self.iteration

    @property
    def trial_id(self) -> str | None:
        """The id of the trial."""
        return session.get_context().get_trial_id()

    @property
    def trial_name(self) -> str | None:
        """The name of the trial."""
        return session.get_context().get_trial_name()

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, before the first step."""

    def step(self) -> dict[str, Any]:
        """One iteration; gives its metrics."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method `step`\nhint: define it: it returns a dict of metrics"
        )

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        """Writes files into the folder, or returns a dictionary."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method `save_checkpoint`"
            "\nhint: define it, or leave out `checkpoint_frequency`"
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Reads what `save_checkpoint` has saved."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method `load_checkpoint`"
            "\nhint: define it: it takes what `save_checkpoint` returned"
        )

    def cleanup(self) -> None:
        """Called once, at the end."""


@dataclasses.dataclass(frozen=True)
class PlacementGroupFactory:
    """Resources of a trial as a list of bundles. Their sum is held; a trial is one process."""

    bundles: list[dict[str, float]]
    strategy: str = "PACK"

    def total(self) -> dict[str, float]:
        """What all bundles hold together."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A trainable with values from the object store, or with resources of its own."""

    trainable: Any
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    resources: Any = None


def with_parameters(trainable: Any, **parameters: Any) -> Prepared:
    """Gives large values to a function, or to the `setup` of a class, as keyword arguments.

    The values lie in the object store once, for all trials:

        Tuner(tune.with_parameters(train, data=array), ...)
    """
    prepared = as_prepared(trainable)
    stored = {name: aktis.put(value) for name, value in parameters.items()}
    return dataclasses.replace(prepared, parameters={**prepared.parameters, **stored})


def with_resources(trainable: Any, resources: Any) -> Prepared:
    """Says what each trial holds: `with_resources(train, {"cpu": 2, "gpu": 0.5})`.

    It may also be a function of the configuration, or a `PlacementGroupFactory`.
    """
    if not callable(resources):
        as_amounts(resources)
    return dataclasses.replace(as_prepared(trainable), resources=resources)


def as_prepared(trainable: Any) -> Prepared:
    """The trainable with what is known about it."""
    if isinstance(trainable, Prepared):
        return trainable
    if not callable(trainable) and not isinstance(trainable, DataParallelTrainer):
        raise TypeError(
            f"a trainable must be a function, a class or a trainer, got {trainable!r}\n"
            "hint: def train(config): ... tune.report({'loss': 0.1})"
        )
    if isinstance(trainable, type) and not issubclass(trainable, Trainable):
        raise TypeError(
            f"the class {trainable.__name__} must be a subclass of `aktis.tune.Trainable`"
            "\nhint: derive it from Trainable, or give a function"
        )
    return Prepared(trainable)


def as_amounts(resources: Any) -> dict[str, float]:
    """Resources under the names of the engine."""
    if resources is None:
        return {"CPU": 1.0}
    if isinstance(resources, PlacementGroupFactory):
        resources = resources.total()
    if isinstance(resources, ScalingConfig):
        resources = resources.total_resources
    if not isinstance(resources, Mapping):
        raise TypeError(f"resources must be a dictionary, got {resources!r}\nhint: {{'cpu': 2, 'gpu': 1}}")
    renamed: dict[str, float] = {}
    for name, amount in resources.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
            raise ValueError(
                f"the amount of {name!r} must be a number >= 0, got {amount!r}"
                '\nhint: for example {"cpu": 2}'
            )
        renamed[{"cpu": "CPU", "gpu": "GPU"}.get(str(name), str(name))] = float(amount)
    return renamed


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs a trial in its worker. Holds all that the worker needs to know."""

    prepared: Prepared
    checkpoint_config: CheckpointConfig
    checkpoint_interval: int
    """Class trainables save a checkpoint after so many iterations; 0: never."""

    def resources(self, config: Mapping[str, Any]) -> dict[str, float]:
        """What the actor of a trial holds."""
        wanted = self.prepared.resources
        trainer = self.prepared.trainable
        if isinstance(trainer, DataParallelTrainer):
            return as_amounts(trainer.scaling_config.trainer_resources or {})
        return as_amounts(wanted(config) if callable(wanted) else wanted)

    def total(self, config: Mapping[str, Any]) -> dict[str, float]:
        """What a trial holds with the workers that it starts."""
        trainer = self.prepared.trainable
        if isinstance(trainer, DataParallelTrainer):
            return as_amounts(scaling_of(trainer, config).total_resources)
        return self.resources(config)

    def name(self) -> str:
        """For the names of trials."""
        trainable = self.prepared.trainable
        return str(getattr(trainable, "__name__", type(trainable).__name__)).replace("<lambda>", "lambda")

    def __call__(self, config: dict[str, Any]) -> None:
        trainable = self.prepared.trainable
        values = {name: aktis.get(ref) for name, ref in self.prepared.parameters.items()}
        if isinstance(trainable, DataParallelTrainer):
            run_trainer(trainable, config)
        elif isinstance(trainable, type):
            self._run_class(trainable, config, values)
        else:
            run_function(trainable, config, values)

    def _run_class(self, kind: type[Trainable], config: dict[str, Any], values: dict[str, Any]) -> None:
        trainable = kind(config)
        trainable.config = config
        trainable.iteration = getattr(trainable, "iteration", 0)
        trainable.setup(config, **values)
        try:
            if (checkpoint := session.get_checkpoint()) is not None:
                load(trainable, checkpoint)
            self._steps(trainable)
        finally:
            trainable.cleanup()

    def _steps(self, trainable: Trainable) -> None:
        at_end = bool(self.checkpoint_config.checkpoint_at_end)
        done = False
        while not done:
            metrics = dict(trainable.step())
            trainable.iteration += 1
            done = bool(metrics.get("done"))
            interval = self.checkpoint_interval
            saved = (interval and trainable.iteration % interval == 0) or (done and at_end)
            try:
                with saved_checkpoint(trainable) if saved else contextlib.nullcontext() as checkpoint:
                    session.report(metrics, checkpoint=checkpoint)
            except StopTraining:
                if at_end and not saved:
                    with saved_checkpoint(trainable) as checkpoint:
                        session.current("report").add_checkpoint(checkpoint)
                raise


def run_function(function: Callable[..., Any], config: dict[str, Any], values: dict[str, Any]) -> None:
    """Runs a function. What it returns, or yields, are metrics as well."""
    found = function(config, **values) if takes_config(function) or values else function()
    if isinstance(found, Mapping):
        session.report(found)
    elif isinstance(found, Iterator):
        for metrics in found:
            session.report(metrics)


@contextlib.contextmanager
def saved_checkpoint(trainable: Trainable) -> Iterator[Checkpoint]:
    """A checkpoint of a class trainable, in a temporary folder."""
    import cloudpickle

    with tempfile.TemporaryDirectory() as folder:
        state = trainable.save_checkpoint(folder)
        if state is not None and not isinstance(state, Mapping | str):
            raise TypeError(
                f"`save_checkpoint` must return a dictionary or nothing, got {state!r}"
                "\nhint: write into the folder that it is given, or return a dict"
            )
        content = {"state": state if isinstance(state, Mapping) else None, "iteration": trainable.iteration}
        with open(os.path.join(folder, STATE), "wb") as file:
            cloudpickle.dump(content, file)
        yield Checkpoint.from_directory(folder)


def load(trainable: Trainable, checkpoint: Checkpoint) -> None:
    """Brings a class trainable back to a checkpoint."""
    import cloudpickle

    with checkpoint.as_directory() as folder:
        with open(os.path.join(folder, STATE), "rb") as file:
            content = cloudpickle.load(file)
        trainable.load_checkpoint(folder if content["state"] is None else content["state"])
        trainable.iteration = content["iteration"]


def scaling_of(trainer: DataParallelTrainer, config: Mapping[str, Any]) -> ScalingConfig:
    """The scaling of a trainer in a trial: a trial's configuration may have its own."""
    scaling = config.get("scaling_config")
    return scaling if isinstance(scaling, ScalingConfig) else trainer.scaling_config


def run_trainer(trainer: DataParallelTrainer, config: Mapping[str, Any]) -> None:
    """Runs a trainer as a trial: its reports are those of the trial."""
    import copy

    context = session.get_context()
    current = session.current("report")
    inner = copy.copy(trainer)
    inner.train_loop_config = {**trainer.train_loop_config, **config.get("train_loop_config", {})}
    inner.scaling_config = scaling_of(trainer, config)
    inner.resume_from_checkpoint = session.get_checkpoint() or trainer.resume_from_checkpoint
    inner.run_config = dataclasses.replace(
        trainer.run_config,
        storage_path=context.get_storage(),
        name=f"training_{uuid.uuid4().hex[:8]}",
        checkpoint_config=dataclasses.replace(trainer.run_config.checkpoint_config, num_to_keep=1),
        verbose=0,
    )

    def reported(metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            session.report(metrics)
        else:
            current.add_checkpoint(checkpoint)

    inner.on_report = reported
    inner.fit()
