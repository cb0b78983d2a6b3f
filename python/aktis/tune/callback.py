"""Callbacks: what a program wants to know of an experiment while it runs."""

from typing import Any

from aktis.train.checkpoint import Checkpoint
from aktis.tune.trial import Trial

__all__ = ["Callback"]


class Callback:
    """Hooks that the driver calls; derive from it, and give objects to `RunConfig(callbacks=[...])`.

        class Print(tune.Callback):
            def on_trial_complete(self, iteration, trials, trial, **info):
                print(trial.name, trial.last_result["loss"])

    `iteration` counts the reports of all trials, `trials` are all trials so far. A hook that raises while a
    trial reports fails this trial; any other ends the experiment.
    """

    def setup(self, **info: Any) -> None:
        """Before the first trial."""

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial begins, or begins again."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has reported."""

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        """A trial has saved a checkpoint."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial is done."""

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial has failed for good; `trial.error` is why."""

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """After the last trial."""


def has_hooks(callback: Any) -> bool:
    """Whether it is a `Callback`, or like one; others are functions that are called with each result."""
    return hasattr(callback, "on_trial_result")
