"""`Tuner`: an experiment of many trials."""

import copy
import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aktis
from aktis.train.checkpoint import CheckpointError, read_pickle
from aktis.train.config import RunConfig, check_count, check_mode
from aktis.tune.console import CLIReporter
from aktis.tune.controller import STATE, VERSION, Controller, TuneError
from aktis.tune.result_grid import ExperimentAnalysis, ResultGrid
from aktis.tune.schedulers import FIFOScheduler, TrialScheduler
from aktis.tune.search import BasicVariantGenerator, Searcher
from aktis.tune.trainable import Runner, as_prepared, with_resources
from aktis.tune.trial import ERROR, PENDING, Trial

__all__ = ["TuneConfig", "Tuner", "run"]


@dataclass(frozen=True)
class TuneConfig:
    """How an experiment searches."""

    metric: str | None = None
    mode: str | None = None
    """"min" or "max"."""
    search_alg: Searcher | None = None
    scheduler: TrialScheduler | None = None
    num_samples: int = 1
    """How often each combination of the grids is tried; how many trials a searcher may make; -1: without end,
    until `time_budget_s`, a stopper or Ctrl-C ends the experiment."""
    max_concurrent_trials: int | None = None
    """Without it, as many as the cluster has room for."""
    time_budget_s: float | None = None
    """Seconds after which all trials end."""
    reuse_actors: bool = False
    """Kept for programs that set it: a trial has a process of its own in any case."""

    def __post_init__(self) -> None:
        if self.mode is not None:
            check_mode("mode", self.mode)
        if self.num_samples != -1:
            check_count("num_samples", self.num_samples, 1, "-1 searches without end")
        if self.max_concurrent_trials:
            check_count("max_concurrent_trials", self.max_concurrent_trials, 1)
        if self.time_budget_s is not None and not self.time_budget_s > 0:
            raise ValueError(
                f"`time_budget_s` must be positive, got {self.time_budget_s}"
                "\nhint: give seconds, e.g. time_budget_s=600"
            )
        for name, value, kind in (
            ("search_alg", self.search_alg, Searcher),
            ("scheduler", self.scheduler, TrialScheduler),
        ):
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"`{name}` must be a {kind.__name__}, got {value!r}"
                    "\nhint: make one by its constructor, or leave the argument out"
                )


class Tuner:
    """Runs a function, a class or a trainer with many configurations.

        def train(config):
            for step in range(10):
                tune.report({"loss": (config["x"] - 3) ** 2 / (step + 1)})

        tuner = Tuner(
            train,
            param_space={"x": tune.uniform(0, 10)},
            tune_config=TuneConfig(metric="loss", mode="min", num_samples=20),
        )
        best = tuner.fit().get_best_result()

    Each trial is an actor, which holds 1 CPU unless `with_resources` says otherwise.
    """

    def __init__(
        self,
        trainable: Any,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        self._prepared = as_prepared(trainable)
        for name, value, kind in (
            ("param_space", param_space, Mapping),
            ("tune_config", tune_config, TuneConfig),
            ("run_config", run_config, RunConfig),
            ("progress_reporter", getattr(run_config, "progress_reporter", None), CLIReporter),
        ):
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"`{name}` must be a {kind.__name__}, got {value!r}"
                    "\nhint: make one by its constructor, or leave the argument out"
                )
        self._space = dict(param_space or {})
        self._settings = tune_config or TuneConfig()
        self._run_config = run_config or RunConfig()
        self._path: str | None = None
        self._state: dict[str, Any] | None = None
        self._grid: ResultGrid | None = None

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is an experiment in this folder."""
        return os.path.isfile(os.path.join(os.path.expanduser(os.fspath(path)), STATE))

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
    ) -> "Tuner":
        """The tuner of an experiment whose driver has died; its `fit` goes on.

        Trials that were done stay so; those that were not go on from their last checkpoints. With
        `resume_errored` those that failed do so too, and with `restart_errored` they start anew. Callbacks
        are not stored.
        """
        folder = os.path.abspath(os.path.expanduser(os.fspath(path)))
        if not cls.can_restore(folder):
            raise ValueError(
                f"there is no experiment in {folder}\n"
                "hint: the folder is `storage_path/name` of the experiment"
            )
        state = read_pickle(os.path.join(folder, STATE), "the state of the experiment")
        version = state.get("version") if isinstance(state, dict) else None
        if version != VERSION:
            raise CheckpointError(
                f"the experiment in {folder} has version {version!r}, and this Aktis reads {VERSION}"
                "\nhint: restore it by the version of Aktis that wrote it"
            )
        tuner = cls(
            trainable,
            param_space=state["space"],
            tune_config=state["settings"],
            run_config=state["run_config"],
        )
        for trial in state["trials"]:
            trial.path = os.path.join(folder, os.path.basename(trial.path))
            if trial.status == ERROR and (resume_errored or restart_errored):
                trial.status, trial.error, trial.failures = PENDING, None, 0
                if restart_errored:
                    restart(trial)
            elif not trial.is_finished:
                trial.status = PENDING if resume_unfinished else "TERMINATED"
        tuner._path, tuner._state = folder, state
        return tuner

    def fit(self) -> ResultGrid:
        """Runs all trials, and gives their results. `ResultGrid.errors` has those that failed."""
        if not aktis.is_initialized():
            aktis.init()
        state = self._state or self._begin()
        path = self._path or self._run_config.folder(
            Runner(self._prepared, self._run_config.checkpoint_config, 0).name()
        )
        os.makedirs(path, exist_ok=True)
        scheduler: TrialScheduler = state["scheduler"]
        checkpoints = self._run_config.checkpoint_config
        intervals = [n for n in (checkpoints.checkpoint_frequency, scheduler.checkpoint_interval) if n]
        runner = Runner(self._prepared, checkpoints, min(intervals, default=0))
        # Callbacks belong to this process, and need not be picklable.
        run_config = dataclasses.replace(self._run_config, callbacks=())
        stored = {"space": self._space, "settings": self._settings, "run_config": run_config}
        controller = Controller(
            path,
            runner,
            state["searcher"],
            scheduler,
            state["trials"],
            self._settings,
            self._run_config,
            stored,
        )
        trials: list[Trial] = controller.run()
        results = [trial.result(controller.folder_of(trial)) for trial in trials]
        self._grid = ResultGrid(results, path, self._settings.metric, self._settings.mode)
        return self._grid

    def get_results(self) -> ResultGrid:
        """The results of `fit`."""
        if self._grid is None:
            raise RuntimeError("there are no results yet\nhint: call `fit` first")
        return self._grid

    def _begin(self) -> dict[str, Any]:
        """The state of an empty experiment. The user's searcher and scheduler stay as they are."""
        settings = self._settings
        searcher = copy.deepcopy(settings.search_alg) or BasicVariantGenerator()
        scheduler = copy.deepcopy(settings.scheduler) or FIFOScheduler()
        scheduler.set_search_properties(settings.metric, settings.mode)
        searcher.set_search_properties(settings.metric, settings.mode, self._space, settings.num_samples)
        return {"searcher": searcher, "scheduler": scheduler, "trials": []}


def restart(trial: Trial) -> None:
    """Forgets what a trial has done."""
    import shutil

    shutil.rmtree(trial.path, ignore_errors=True)
    trial.last_result, trial.seconds = {}, 0.0


def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Mapping[str, float] | Callable[[str, dict[str, Any]], bool] | None = None,
    time_budget_s: float | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Mapping[str, float] | None = None,
    num_samples: int = 1,
    storage_path: str | os.PathLike[str] | None = None,
    search_alg: Searcher | None = None,
    scheduler: TrialScheduler | None = None,
    checkpoint_config: Any = None,
    max_failures: int = 0,
    fail_fast: bool = False,
    max_concurrent_trials: int | None = None,
    callbacks: Any = (),
    verbose: int | None = None,
    raise_on_failed_trial: bool = True,
    resume: bool | str = False,
) -> ExperimentAnalysis:
    """Runs an experiment in one call; `Tuner` is the newer form.

    With `resume=True` it goes on with the experiment of this `name` whose driver has died; `"AUTO"` starts a
    new one if there is none.

    analysis = tune.run(train, config={"x": tune.grid_search([1, 2, 3])}, metric="loss", mode="min")
    print(analysis.best_config)
    """
    from aktis.train.config import CheckpointConfig, FailureConfig

    trainable = run_or_experiment
    if resources_per_trial is not None:
        trainable = with_resources(trainable, resources_per_trial)
    tune_config = TuneConfig(
        metric, mode, search_alg, scheduler, num_samples, max_concurrent_trials, time_budget_s
    )
    run_config = RunConfig(
        name=name,
        storage_path=storage_path,
        stop=stop,
        failure_config=FailureConfig(max_failures, fail_fast),
        checkpoint_config=checkpoint_config or CheckpointConfig(),
        callbacks=callbacks,
        verbose=verbose,
    )
    if resume not in (False, True, "AUTO"):
        raise ValueError(
            f'`resume` must be True, False or "AUTO", got {resume!r}'
            "\nhint: Tuner.restore also takes up trials that failed (resume_errored=True)"
        )
    if resume and name is None:
        raise ValueError("`resume` needs the `name` of the experiment\nhint: tune.run(..., name=...)")
    folder = run_config.folder("")
    if resume is True or (resume and Tuner.can_restore(folder)):
        tuner = Tuner.restore(folder, trainable)
        # Callbacks are not kept with the experiment.
        tuner._run_config = dataclasses.replace(
            tuner._run_config, callbacks=run_config.callbacks, verbose=verbose
        )
    else:
        tuner = Tuner(trainable, param_space=config, tune_config=tune_config, run_config=run_config)
    grid = tuner.fit()
    if raise_on_failed_trial and grid.num_errors:
        raise TuneError(
            f"{grid.num_errors} of {len(grid)} trials failed; the first: {grid.errors[0]}"
            "\nhint: `results.errors` has all; each trial's folder has its output"
        )
    return ExperimentAnalysis(list(grid), grid.experiment_path, metric, mode)
