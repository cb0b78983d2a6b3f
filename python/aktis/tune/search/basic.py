"""The usual searcher: all combinations of the grids, and random draws."""

import random
from collections.abc import Mapping
from typing import Any

from aktis.tune.search.searcher import Searcher
from aktis.tune.space import variants

__all__ = ["BasicVariantGenerator"]


class BasicVariantGenerator(Searcher):
    """Tries each combination of the grids `num_samples` times, and draws the other parameters at random.

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

    def set_search_properties(
        self, metric: str | None, mode: str | None, space: Mapping[str, Any], num_samples: int
    ) -> None:
        super().set_search_properties(metric, mode, space, num_samples)
        seed = random.getrandbits(64) if self._seed is None else self._seed
        found = list(variants(space, num_samples, random.Random(seed)))
        for index, point in enumerate(self._points[: len(found)]):
            found[index] = {**found[index], **point}
        self._waiting = found

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        return self._waiting.pop(0) if self._waiting else Searcher.FINISHED
