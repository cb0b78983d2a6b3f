"""What a searcher is, and a bound on how many of its trials run at once."""

from collections.abc import Mapping
from typing import Any

from aktis.train.config import check_count

__all__ = ["ConcurrencyLimiter", "Searcher"]


class Searcher:
    """Chooses configurations, and learns from results. Subclass it to plug in a method of your own.

    A searcher is pickled with the state of the experiment, so that a restored one goes on where it was.
    """

    FINISHED = "FINISHED"
    """What `suggest` gives when there are no more trials."""

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        self.metric = metric
        self.mode = mode

    def set_search_properties(
        self, metric: str | None, mode: str | None, space: Mapping[str, Any], num_samples: int
    ) -> None:
        """Called once, before the first trial, with the settings of the tuner."""
        self.metric = self.metric or metric
        self.mode = self.mode or mode

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The configuration of a new trial; None if it is too early to say, `FINISHED` if there is none."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A trial is done, or has failed."""


class ConcurrencyLimiter(Searcher):
    """A searcher of which at most `max_concurrent` trials run at once."""

    def __init__(self, searcher: Searcher, max_concurrent: int) -> None:
        check_count("max_concurrent", max_concurrent, 1)
        super().__init__(searcher.metric, searcher.mode)
        self.searcher = searcher
        self.max_concurrent = max_concurrent
        self.live: set[str] = set()

    def set_search_properties(
        self, metric: str | None, mode: str | None, space: Mapping[str, Any], num_samples: int
    ) -> None:
        self.searcher.set_search_properties(metric, mode, space, num_samples)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if len(self.live) >= self.max_concurrent:
            return None
        config = self.searcher.suggest(trial_id)
        if isinstance(config, dict):
            self.live.add(trial_id)
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.live.discard(trial_id)
        self.searcher.on_trial_complete(trial_id, result, error)
