"""Searching with Optuna; needs the package `optuna` (`pip install "aktis[tune]"`)."""

from collections.abc import Mapping
from typing import Any

from aktis.tune.search.searcher import Searcher
from aktis.tune.space import Choice, Domain, Float, Integer, is_grid, leaves, put

__all__ = ["OptunaSearch"]


class OptunaSearch(Searcher):
    """Lets a sampler of Optuna choose the configurations; without one, its tree of Parzen estimators.

        tuner = Tuner(
            objective,
            param_space={"x": tune.uniform(-10, 10)},
            tune_config=TuneConfig(metric="loss", mode="min", search_alg=OptunaSearch(), num_samples=50),
        )

    The space is the tuner's `param_space` or `space` here. It has domains and constants, and no grids.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        sampler: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(metric, mode)
        try:
            import optuna
        except ModuleNotFoundError as error:
            if error.name != "optuna":
                raise
            raise ModuleNotFoundError(
                'OptunaSearch needs the package optuna\nhint: pip install "aktis[tune]"', name="optuna"
            ) from None
        self._space = space
        self._points = list(points_to_evaluate or [])
        self._sampler = sampler or optuna.samplers.TPESampler(seed=seed)
        self._study: Any = None
        self._trials: dict[str, Any] = {}
        self._left = 0

    def set_search_properties(
        self, metric: str | None, mode: str | None, space: Mapping[str, Any], num_samples: int
    ) -> None:
        import optuna

        super().set_search_properties(metric, mode, space, num_samples)
        if self.metric is None or self.mode is None:
            raise ValueError("OptunaSearch needs `metric` and `mode`\nhint: give them to TuneConfig")
        self._space = self._space or space
        for path, value in leaves(self._space):
            if is_grid(value) or (
                isinstance(value, Domain) and not isinstance(value, Float | Integer | Choice)
            ):
                raise ValueError(
                    f"OptunaSearch cannot search {'/'.join(map(str, path))} = {value!r}\n"
                    "hint: use choice, uniform, quniform, loguniform, randint or lograndint"
                )
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        direction = "minimize" if self.mode == "min" else "maximize"
        self._study = optuna.create_study(direction=direction, sampler=self._sampler)
        for point in self._points:
            self._study.enqueue_trial({"/".join(map(str, path)): value for path, value in leaves(point)})
        self._left = num_samples

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._left == 0:
            return Searcher.FINISHED
        self._left -= 1
        trial = self._trials[trial_id] = self._study.ask()
        config: dict[str, Any] = {}
        for path, value in leaves(self._space or {}):
            put(config, path, suggested(trial, "/".join(map(str, path)), value))
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        trial = self._trials.get(trial_id)
        if trial is not None and self.metric in result:
            trial.report(float(result[self.metric]), int(result.get("training_iteration", 1)))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        import optuna

        trial = self._trials.pop(trial_id, None)
        if trial is None:
            return
        value = (result or {}).get(self.metric or "")
        if error or value is None or value != value:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, float(value))


def suggested(trial: Any, name: str, value: Any) -> Any:
    """What Optuna chooses for one parameter; a constant is itself."""
    if isinstance(value, Choice):
        # By number: categories of Optuna's must be of few types, ours need not.
        return value.categories[trial.suggest_int(name, 0, len(value.categories) - 1)]
    if isinstance(value, Float):
        step = None if value.log else value.step
        return value.clip(trial.suggest_float(name, value.lower, value.upper, step=step, log=value.log))
    if isinstance(value, Integer):
        number = trial.suggest_int(name, value.lower, value.upper - 1, log=value.log)
        return value.clip(number)
    return value
