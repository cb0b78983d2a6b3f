"""Asynchronous successive halving: at each rung, only the best trials go on.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020.
"""

import math
from collections.abc import Mapping
from typing import Any

from aktis.train.config import check_count
from aktis.tune.schedulers.scheduler import Decision, TrialScheduler

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler"]


class ASHAScheduler(TrialScheduler):
    """Stops a trial at a rung unless it is among the best `1 / reduction_factor` that have come there.

    The rungs are at `grace_period`, `grace_period * reduction_factor`, and so on; at `max_t` every trial
    ends. A trial never waits for others. With several `brackets`, some trials have a longer grace period.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: int = 100,
        grace_period: int = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_count("brackets", brackets, 1)
        if not 0 < grace_period <= max_t:
            raise ValueError(
                f"`grace_period` must be in (0, max_t = {max_t}], got {grace_period}"
                "\nhint: a trial reports at least `grace_period` times before it may be stopped"
            )
        if not reduction_factor > 1:
            raise ValueError(
                f"`reduction_factor` must be more than 1, got {reduction_factor}"
                "\nhint: 4 keeps a quarter of the trials at each rung"
            )
        self.max_t = max_t
        self.factor = reduction_factor
        self.stop_last_trials = stop_last_trials
        self._rungs = [
            {
                milestone: dict[str, float]()
                for milestone in milestones(grace_period, max_t, reduction_factor, s)
            }
            for s in range(brackets)
        ]
        self._bracket_of: dict[str, int] = {}

    def on_trial_add(self, trial_id: str, config: dict[str, Any]) -> None:
        self._bracket_of[trial_id] = len(self._bracket_of) % len(self._rungs)

    def on_trial_result(
        self, trial_id: str, config: Mapping[str, Any], result: Mapping[str, Any], waiting: int
    ) -> Decision:
        time = result[self.time_attr]
        if time >= self.max_t:
            return self.STOP if self.stop_last_trials else self.CONTINUE
        rungs = self._rungs[self._bracket_of.get(trial_id, 0)]
        for milestone in sorted(rungs, reverse=True):
            scores = rungs[milestone]
            if time < milestone:
                continue
            if trial_id in scores:
                break
            scores[trial_id] = score = self.score(result)
            better = sum(other > score for other in scores.values())
            kept = max(1, math.floor(len(scores) / self.factor))
            return self.CONTINUE if better < kept else self.STOP
        return self.CONTINUE


AsyncHyperBandScheduler = ASHAScheduler
"""Another name that users of Ray Tune know."""


def milestones(grace_period: int, max_t: int, factor: float, bracket: int) -> list[float]:
    """When the trials of a bracket are compared."""
    found = []
    milestone = grace_period * factor**bracket
    while milestone < max_t:
        found.append(milestone)
        milestone *= factor
    return found
