"""What a scheduler is, and the one that lets every trial run to its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aktis.train.config import check_mode

__all__ = ["Decision", "FIFOScheduler", "TrialScheduler"]


@dataclass(frozen=True)
class Decision:
    """What happens to a trial after a report."""

    kind: str
    donor: str | None = None
    """Of "EXPLOIT": the id of the trial from whose checkpoint it goes on."""
    config: Mapping[str, Any] | None = None
    """Of "EXPLOIT": its new configuration."""


class TrialScheduler:
    """Decides after each report of a trial. It is pickled with the state of the experiment."""

    CONTINUE = Decision("CONTINUE")
    STOP = Decision("STOP")
    PAUSE = Decision("PAUSE")
    """Let another trial run first; the trial goes on later from its checkpoint."""

    checkpoint_interval: int = 0
    """After so many iterations class trainables save a checkpoint for the scheduler; 0: never."""

    def __init__(
        self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None
    ) -> None:
        if mode is not None:
            check_mode("mode", mode)
        self.time_attr = time_attr
        self.metric = metric
        self.mode = mode

    needs_metric = True

    def set_search_properties(self, metric: str | None, mode: str | None) -> None:
        """Called once, before the first trial, with the settings of the tuner."""
        self.metric = self.metric or metric
        self.mode = self.mode or mode
        if self.needs_metric and (self.metric is None or self.mode is None):
            name = type(self).__name__
            raise ValueError(f"{name} needs `metric` and `mode`\nhint: give them to TuneConfig, or to {name}")

    def score(self, result: Mapping[str, Any]) -> float:
        """How good a result is: larger is better, and NaN is worst."""
        value = float(result[self.metric or ""])
        if value != value:
            return -float("inf")
        return value if self.mode == "max" else -value

    def on_trial_add(self, trial_id: str, config: dict[str, Any]) -> None:
        """There is a new trial. Its configuration may still be changed."""

    def on_trial_result(
        self, trial_id: str, config: Mapping[str, Any], result: Mapping[str, Any], waiting: int
    ) -> Decision:
        """A trial has reported, and `waiting` others have no room to run."""
        return self.CONTINUE

    def on_trial_complete(self, trial_id: str) -> None:
        """A trial is done, or has failed."""


class FIFOScheduler(TrialScheduler):
    """Lets every trial run to its end, in the order in which they come."""

    needs_metric = False
