"""Stoppers: rules for `RunConfig(stop=...)` that end single trials, or the whole experiment."""

import math
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from aktis.train.config import check_count, check_mode

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
]


class Stopper:
    """A rule that is asked after each report of a trial. It is pickled with the state of the experiment."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this trial ends."""
        return False

    def stop_all(self) -> bool:
        """Whether all trials end."""
        return False


class NoopStopper(Stopper):
    """Ends nothing."""


class FunctionStopper(Stopper):
    """Ends a trial when a function of its id and its report says so."""

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        if not callable(function):
            raise TypeError(
                f"`function` must be a function of (trial_id, result), got {function!r}"
                "\nhint: FunctionStopper(lambda trial_id, result: result['loss'] < 0.1)"
            )
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))


class MaximumIterationStopper(Stopper):
    """Ends a trial after so many reports."""

    def __init__(self, max_iter: int) -> None:
        check_count("max_iter", max_iter, 1)
        self._max = max_iter

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["training_iteration"] >= self._max)


class TrialPlateauStopper(Stopper):
    """Ends a trial whose latest `num_results` values of a metric hardly differ.

    Their standard deviation is at most `std`, and there were `grace_period` reports. With
    `metric_threshold` and `mode`, a trial goes on until its value has reached the threshold.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        check_count("num_results", num_results, 1)
        if metric_threshold is not None:
            check_mode("mode", mode)
        self._metric, self._std, self._count, self._grace = metric, std, num_results, grace_period
        self._threshold, self._mode = metric_threshold, mode
        self._latest: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = float(result[self._metric])
        latest = self._latest.setdefault(trial_id, deque(maxlen=self._count))
        latest.append(value)
        if result["training_iteration"] < self._grace or len(latest) < self._count:
            return False
        if self._threshold is not None:
            reached = value <= self._threshold if self._mode == "min" else value >= self._threshold
            if not reached:
                return False
        return deviation(latest) <= self._std


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment once the `top` best values of a metric have hardly differed for a while.

    Their standard deviation is at most `std`, in more than `patience` reports one after another.
    """

    def __init__(
        self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0
    ) -> None:
        check_mode("mode", mode)
        check_count("top", top, 1)
        check_count("patience", patience, 0)
        self._metric, self._std, self._top, self._mode, self._patience = metric, std, top, mode, patience
        self._best: list[float] = []
        self._flat = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        best = sorted([*self._best, float(result[self._metric])], reverse=self._mode == "max")
        self._best = best[: self._top]
        is_flat = len(self._best) == self._top and deviation(self._best) <= self._std
        self._flat = self._flat + 1 if is_flat else 0
        return self.stop_all()

    def stop_all(self) -> bool:
        return self._flat > self._patience


class TimeoutStopper(Stopper):
    """Ends the experiment after so many seconds, or a `timedelta`, from its first report on.

    The time between the death of a driver and `Tuner.restore` does not count.
    """

    def __init__(self, timeout: float | timedelta) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ValueError(
                f"`timeout` must be a positive number of seconds or a timedelta, got {timeout!r}"
                "\nhint: for example TimeoutStopper(3600)"
            )
        self._seconds = seconds
        self._used = 0.0
        self._looked_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_looked_at": None}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self.stop_all()

    def stop_all(self) -> bool:
        now = time.monotonic()
        self._used += 0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        return self._used >= self._seconds


class CombinedStopper(Stopper):
    """Ends a trial, or the experiment, when one of several stoppers does."""

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise TypeError(
                    f"a stopper must be a `Stopper`, got {stopper!r}"
                    "\nhint: FunctionStopper makes one of a function"
                )
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        answers = [stopper(trial_id, result) for stopper in self._stoppers]  # each is told of each report
        return any(answers)

    def stop_all(self) -> bool:
        return any(stopper.stop_all() for stopper in self._stoppers)


def deviation(values: "list[float] | deque[float]") -> float:
    """The standard deviation; infinity if a value is not finite."""
    if not all(map(math.isfinite, values)):
        return math.inf
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
