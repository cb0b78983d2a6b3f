"""Settings of training runs: how many workers, where results go, what happens after a failure."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"]

STORAGE_VARIABLE = "AKTIS_STORAGE_PATH"
"""Where runs are stored whose `RunConfig` does not say."""

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


def check_count(name: str, value: object, least: int, hint: str = "give a larger number") -> None:
    """Refuses what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` must be an int, got {value!r}\nhint: give a whole number")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}\nhint: {hint}")


def check_mode(name: str, mode: object) -> None:
    """Refuses what is neither "min" nor "max"."""
    if mode not in ("min", "max"):
        raise ValueError(
            f'`{name}` must be "min" or "max", got {mode!r}'
            '\nhint: "min" keeps the lowest values, "max" the highest'
        )


@dataclass(frozen=True)
class ScalingConfig:
    """How many workers train, and what each of them holds.

    `num_workers=(1, 4)` makes the run elastic: it starts with as many workers as the cluster has room for,
    at least 1 and at most 4, and chooses again after each failure.

        ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2})
    """

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] | None = None
    """What a worker holds; without it 1 CPU, and with `use_gpu` 1 GPU as well."""
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    trainer_resources: Mapping[str, float] | None = None
    """What a trial of `aktis.tune` holds beside the workers of its trainer; without it nothing."""
    placement_timeout_s: float = 60.0
    """Seconds until a run fails whose workers the cluster has no room for."""

    def __post_init__(self) -> None:
        low, high = self.num_workers if isinstance(self.num_workers, tuple) else (self.num_workers,) * 2
        check_count("num_workers", low, 1)
        check_count("num_workers", high, 1)
        if low > high:
            raise ValueError(
                f"`num_workers` is {self.num_workers}\nhint: the smaller number comes first: ({high}, {low})"
            )
        if self.placement_strategy not in STRATEGIES:
            raise ValueError(
                f"`placement_strategy` is {self.placement_strategy!r}\n"
                f"hint: use one of {', '.join(STRATEGIES)}"
            )
        for name, amount in (self.resources_per_worker or {}).items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
                raise ValueError(
                    f"`resources_per_worker[{name!r}]` must be a number >= 0, got {amount!r}"
                    '\nhint: give amounts, e.g. {"CPU": 1}'
                )
        if self.use_gpu and (self.resources_per_worker or {"GPU": 1}).get("GPU", 1) == 0:
            raise ValueError(
                "`use_gpu` is set, and `resources_per_worker` has no GPU\nhint: leave out one of the two"
            )
        if not self.placement_timeout_s > 0:
            raise ValueError(
                f"`placement_timeout_s` must be positive, got {self.placement_timeout_s}"
                "\nhint: give seconds, e.g. placement_timeout_s=60"
            )

    @property
    def workers_min(self) -> int:
        """The fewest workers that may train."""
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def workers_max(self) -> int:
        """The most workers that may train."""
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def worker_resources(self) -> dict[str, float]:
        """What one worker holds."""
        held = {name: float(amount) for name, amount in (self.resources_per_worker or {}).items()}
        held.setdefault("CPU", 1.0)
        if self.use_gpu:
            held.setdefault("GPU", 1.0)
        return {name: amount for name, amount in held.items() if amount}

    @property
    def total_resources(self) -> dict[str, float]:
        """What the smallest allowed run holds, with `trainer_resources`."""
        total = {name: float(amount) for name, amount in (self.trainer_resources or {}).items()}
        for name, amount in self.worker_resources.items():
            total[name] = total.get(name, 0.0) + amount * self.workers_min
        return total


@dataclass(frozen=True)
class FailureConfig:
    """How often a run, or a trial, starts again from its last checkpoint after a failure; -1: always."""

    max_failures: int = 0
    fail_fast: bool = False
    """In `aktis.tune`: the first trial that fails for good ends the others."""

    def __post_init__(self) -> None:
        check_count("max_failures", self.max_failures, -1, "-1 means that every failure is retried")
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(
                "`fail_fast` and `max_failures` contradict each other\nhint: leave out one of the two"
            )

    def allows(self, failures: int) -> bool:
        """Whether the run goes on after so many failures."""
        return self.max_failures == -1 or failures <= self.max_failures


@dataclass(frozen=True)
class CheckpointConfig:
    """Which checkpoints are kept: all of them, or the `num_to_keep` best or latest ones.

    With `checkpoint_score_attribute` the metrics that were reported with a checkpoint say how good it is. The
    latest checkpoint is always kept as well, since a run starts again from it.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    """Of class trainables of `aktis.tune`: they save a checkpoint after so many iterations; 0: never."""
    checkpoint_at_end: bool | None = None
    """Of class trainables of `aktis.tune`: they save one when they are done."""

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            check_count("num_to_keep", self.num_to_keep, 1, "None keeps all")
        check_mode("checkpoint_score_order", self.checkpoint_score_order)
        check_count("checkpoint_frequency", self.checkpoint_frequency, 0)


@dataclass(frozen=True)
class RunConfig:
    """Where a run is stored, under which name, and how it deals with failures.

    A run is stored in the folder `storage_path/name`. Without `storage_path`, the variable
    `AKTIS_STORAGE_PATH` names the folder above, or it is `~/aktis_results`. A run without a name is named
    after its trainer and the time.
    """

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    stop: Mapping[str, float] | Callable[[str, dict[str, Any]], bool] | None = None
    """In `aktis.tune`: a trial ends when one of its metrics is at least this value, or when the function
    says so of `(trial_id, metrics)`."""
    callbacks: Sequence[Any] = ()
    """Functions, which are called with what is reported: the metrics of worker 0, or those of a trial. In
    `aktis.tune` also objects of `tune.Callback`."""
    progress_reporter: Any = None
    """In `aktis.tune`: a `tune.CLIReporter`, which says what the table shows."""
    verbose: int | None = None
    """0: nothing is printed; 1: progress on a terminal, nothing elsewhere; 2: progress in any case."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str | None):
            raise TypeError(
                f"`name` must be a text, got {self.name!r}\nhint: it becomes the name of a folder"
            )
        if not isinstance(self.storage_path, str | os.PathLike | None):
            raise TypeError(
                f"`storage_path` must be a path, got {self.storage_path!r}"
                "\nhint: give the folder that runs are stored in"
            )
        if self.name is not None and (not self.name or "/" in self.name or self.name in (".", "..")):
            raise ValueError(f"`name` is {self.name!r}\nhint: it becomes the name of a folder")
        if self.verbose not in (None, 0, 1, 2):
            raise ValueError(
                f"`verbose` must be 0, 1 or 2, got {self.verbose!r}"
                "\nhint: 0 prints nothing, 1 progress on a terminal, 2 progress in any case"
            )
        # Programs may give None for "as usual".
        for name, usual in (
            ("failure_config", FailureConfig()),
            ("checkpoint_config", CheckpointConfig()),
            ("callbacks", ()),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, usual)
        for callback in self.callbacks:
            if not callable(callback) and not hasattr(callback, "on_trial_result"):
                raise TypeError(
                    f"a callback must be callable with the metrics, got {callback!r}"
                    "\nhint: give a function of one dict"
                )
        if self.storage_path is not None and "://" in str(self.storage_path):
            raise ValueError(
                f"`storage_path` is {str(self.storage_path)!r}, and only folders are supported\n"
                "hint: mount the bucket, or use a folder of the driver; other nodes send it their files"
            )

    def folder(self, kind: str) -> str:
        """The absolute path of the run's folder; `kind` begins the name of a run that has none."""
        from datetime import datetime

        base = self.storage_path or os.environ.get(STORAGE_VARIABLE) or os.path.join("~", "aktis_results")
        name = self.name or f"{kind}_{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
        return os.path.join(os.path.abspath(os.path.expanduser(os.fspath(base))), name)
