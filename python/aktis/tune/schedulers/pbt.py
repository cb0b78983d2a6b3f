"""Population based training: bad trials go on from the checkpoints of good ones, with changed parameters.

Jaderberg et al., "Population Based Training of Neural Networks", 2017.
"""

import copy
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from aktis.tune.schedulers.scheduler import Decision, TrialScheduler
from aktis.tune.space import Choice, Domain, leaves, put

__all__ = ["PopulationBasedTraining"]


class PopulationBasedTraining(TrialScheduler):
    """After each `perturbation_interval`, a trial of the worst quantile takes the place of one of the best.

    The trial goes on from the checkpoint of the better one, with changed parameters: with
    `resample_probability` drawn anew from `hyperparam_mutations`, else multiplied by one of the
    `perturbation_factors` (a neighbour in a list). A number stays within the bounds of its domain. The
    training function must save checkpoints, at least one in each interval.

        PopulationBasedTraining(
            perturbation_interval=5,
            hyperparam_mutations={"rate": tune.loguniform(1e-4, 1e-1), "batch": [16, 32, 64]},
        )

    If there is not room for all trials at once, they take turns of one interval.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 10,
        burn_in_period: float = 0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: tuple[float, float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        if not perturbation_interval > 0:
            raise ValueError(
                f"`perturbation_interval` must be positive, got {perturbation_interval}"
                "\nhint: give the reports between two perturbations"
            )
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(
                f"`quantile_fraction` must be in [0, 0.5], got {quantile_fraction}"
                "\nhint: 0.25 lets the worst quarter copy the best one"
            )
        if not 0 <= resample_probability <= 1:
            raise ValueError(
                f"`resample_probability` must be in [0, 1], got {resample_probability}"
                "\nhint: 0.25 draws a quarter of the values anew"
            )
        if not hyperparam_mutations and custom_explore_fn is None:
            raise ValueError(
                "population based training needs `hyperparam_mutations` or `custom_explore_fn`"
                '\nhint: for example hyperparam_mutations={"lr": tune.loguniform(1e-4, 1e-1)}'
            )
        self.interval = perturbation_interval
        self.burn_in = burn_in_period
        self.mutations = dict(hyperparam_mutations or {})
        self.quantile = quantile_fraction
        self.resample = resample_probability
        self.factors = perturbation_factors
        self.explore_more = custom_explore_fn
        self.random = random.Random(random.getrandbits(64) if seed is None else seed)
        self.checkpoint_interval = (
            1 if time_attr != "training_iteration" else max(1, int(perturbation_interval))
        )
        self._scores: dict[str, float] = {}
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._last: dict[str, float] = {}
        self.perturbations = 0
        """How often a trial has taken the checkpoint of another."""

    def on_trial_add(self, trial_id: str, config: dict[str, Any]) -> None:
        present = {path for path, _ in leaves(config)}
        for path, spec in leaves(self.mutations):
            if path not in present:
                put(config, path, self._draw(spec))
        self._configs[trial_id] = config

    def on_trial_result(
        self, trial_id: str, config: Mapping[str, Any], result: Mapping[str, Any], waiting: int
    ) -> Decision:
        time = float(result[self.time_attr])
        self._configs[trial_id] = config
        if time - self._last.get(trial_id, 0.0) < self.interval or time < self.burn_in:
            return self.CONTINUE
        self._last[trial_id] = time
        self._scores[trial_id] = self.score(result)
        lower, upper = self._quantiles()
        if trial_id in lower and upper:
            donor = self.random.choice(upper)
            self.perturbations += 1
            return Decision("EXPLOIT", donor, self._explore(self._configs[donor]))
        return self.PAUSE if waiting else self.CONTINUE

    def _quantiles(self) -> tuple[list[str], list[str]]:
        ranked = sorted(self._scores, key=lambda trial: self._scores[trial])
        count = min(math.ceil(len(ranked) * self.quantile), len(ranked) // 2)
        return (ranked[:count], ranked[-count:]) if count else ([], [])

    def _draw(self, spec: Any) -> Any:
        if isinstance(spec, Domain):
            return spec.sample(self.random)
        if isinstance(spec, list | tuple):
            return self.random.choice(spec)
        return spec() if callable(spec) else spec

    def _explore(self, config: Mapping[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = copy.deepcopy(dict(config))
        present = dict(leaves(config))
        for path, spec in leaves(self.mutations):
            value = present.get(path)
            if path not in present or self.random.random() < self.resample:
                put(changed, path, self._draw(spec))
            else:
                put(changed, path, self._perturb(value, spec))
        return self.explore_more(changed) if self.explore_more is not None else changed

    def _perturb(self, value: Any, spec: Any) -> Any:
        options = spec.categories if isinstance(spec, Choice) else spec
        if isinstance(options, list | tuple):
            place = options.index(value) if value in options else self.random.randrange(len(options))
            step = self.random.choice((-1, 1))
            return options[min(max(place + step, 0), len(options) - 1)]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._draw(spec)
        number = value * self.random.choice(self.factors)
        if isinstance(spec, Domain):
            return spec.clip(number)
        return round(number) if isinstance(value, int) else number
