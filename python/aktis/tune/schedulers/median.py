"""The median stopping rule: a trial ends when it is worse than half of the others at the same time."""

import statistics
from collections.abc import Mapping
from typing import Any

from aktis.tune.schedulers.scheduler import Decision, TrialScheduler

__all__ = ["MedianStoppingRule"]


class MedianStoppingRule(TrialScheduler):
    """Stops a trial whose best result is below the median of the running means of the others.

    Golovin et al., "Google Vizier", 2017. Nothing is stopped before `grace_period`, or before
    `min_samples_required` other trials have come as far.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 1,
        min_samples_required: int = 3,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        self.grace_period = grace_period
        self.min_samples_required = min_samples_required
        self._scores: dict[str, list[tuple[float, float]]] = {}

    def on_trial_result(
        self, trial_id: str, config: Mapping[str, Any], result: Mapping[str, Any], waiting: int
    ) -> Decision:
        time = float(result[self.time_attr])
        own = self._scores.setdefault(trial_id, [])
        own.append((time, self.score(result)))
        if time < self.grace_period:
            return self.CONTINUE
        means = []
        for other, scores in self._scores.items():
            until = [score for at, score in scores if at <= time]
            if other != trial_id and until and scores[-1][0] >= time:
                means.append(statistics.fmean(until))
        if len(means) < self.min_samples_required:
            return self.CONTINUE
        best = max(score for _, score in own)
        return self.CONTINUE if best >= statistics.median(means) else self.STOP
