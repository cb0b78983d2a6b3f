"""The usual searcher: all combinations of the grids, and random draws."""

import random
from collections.abc import Mapping
from typing import Any

from aktis.tune.search.searcher import Searcher
from aktis.tune.space import variants

__all__ = ["BasicVariantGenerator"]


class BasicVariantGenerator(Searcher):
    """Tries each combination of the grids `num_samples` times, and draws the other parameters at random.
    With `num_samples=-1` it does so without end.

    `random_state` makes the draws repeatable. Without it, they follow from `random.seed`.
    `points_to_evaluate` are configurations to try first.
    """

    def __init__(
        self,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        max_concurrent: int = 0,
        random_state: int | None = None,
    ) -> None:
        super().__init__()
        self._points = list(points_to_evaluate or [])
        self._seed = random_state
        self.max_concurrent = max_concurrent
        self._waiting: list[dict[str, Any]] = []
        self._space: Mapping[str, Any] = {}
        self._random = random.Random()
        #: How often the combinations are still to be tried; -1: without end.
        self._rounds_left = 0

    def set_search_properties(
        self, metric: str | None, mode: str | None, space: Mapping[str, Any], num_samples: int
    ) -> None:
        super().set_search_properties(metric, mode, space, num_samples)
        seed = random.getrandbits(64) if self._seed is None else self._seed
        self._space, self._random, self._rounds_left = space, random.Random(seed), num_samples

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if not self._waiting and self._rounds_left:
            self._rounds_left -= self._rounds_left > 0
            self._waiting = list(variants(self._space, 1, self._random))
        if not self._waiting:
            return Searcher.FINISHED
        config = self._waiting.pop(0)
        return {**config, **self._points.pop(0)} if self._points else config
