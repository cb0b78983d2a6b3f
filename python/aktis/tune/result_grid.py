"""The results of all trials of an experiment."""

from collections.abc import Iterator
from typing import Any

from aktis.train.config import check_mode
from aktis.train.result import Result
from aktis.train.storage import is_number

__all__ = ["ExperimentAnalysis", "ResultGrid"]


class ResultGrid:
    """A sequence of results, in the order of the trials.

    best = tuner.fit().get_best_result(metric="loss", mode="min")
    print(best.config, best.checkpoint)
    """

    def __init__(
        self, results: list[Result], path: str, metric: str | None = None, mode: str | None = None
    ) -> None:
        self._results = results
        self.experiment_path = path
        """The folder of the experiment."""
        self._metric = metric
        self._mode = mode

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: int) -> Result:
        return self._results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    @property
    def errors(self) -> list[BaseException]:
        """The errors of the trials that failed."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed."""
        return len(self.errors)

    @property
    def num_terminated(self) -> int:
        """How many trials came to their end."""
        return len(self._results) - len(self.errors)

    def get_best_result(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> Result:
        """The best result by a metric, without those that are NaN.

        `scope` is "last" (the last report of each trial) or "all" (its best report).
        """
        metric, mode = self._by(metric, mode)
        if scope not in ("last", "all"):
            raise ValueError(
                f'`scope` must be "last" or "all", got {scope!r}'
                '\nhint: "last" compares last reports, "all" the best ones'
            )
        order = max if mode == "max" else min
        scored = []
        for result in self._results:
            rows = result.metrics_history if scope == "all" else result.metrics_history[-1:]
            values = [float(row[metric]) for row in rows if is_number(row.get(metric))]
            if values:
                scored.append((order(values), result))
        if not scored:
            told = any(metric in row for result in self._results for row in result.metrics_history)
            what = f"{metric!r} as a number, but NaN or something else" if told else repr(metric)
            raise RuntimeError(
                f"no trial has reported {what}; {self.num_errors} of {len(self)} failed\n"
                "hint: `errors` has the reasons, and `metrics_history` of a result what it reported"
            )
        return order(scored, key=lambda pair: pair[0])[1]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> Any:
        """A `pandas.DataFrame` with a row for each trial: its last report, or its best by a metric."""
        import pandas  # type: ignore[import-untyped]

        from aktis.tune.space import leaves

        rows = []
        for result in self._results:
            row = dict(result.metrics_history[-1]) if result.metrics_history else {}
            if filter_metric is not None:
                _, mode = self._by(filter_metric, filter_mode)
                found = [other for other in result.metrics_history if is_number(other.get(filter_metric))]
                order = max if mode == "max" else min
                row = dict(order(found, key=lambda other: float(other[filter_metric]))) if found else row
            for path, value in leaves(result.config or {}):
                row["config/" + "/".join(map(str, path))] = value
            rows.append(row)
        return pandas.DataFrame(rows)

    def _by(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        metric, mode = metric or self._metric, mode or self._mode
        if metric is None or mode is None:
            raise ValueError("`metric` and `mode` are not known\nhint: give them here, or to TuneConfig")
        check_mode("mode", mode)
        return metric, mode

    def __repr__(self) -> str:
        return f"ResultGrid({len(self)} trials, {self.num_errors} failed, {self.experiment_path!r})"


class ExperimentAnalysis(ResultGrid):
    """What `tune.run` gives: a `ResultGrid` with the names that its users know."""

    @property
    def best_result(self) -> dict[str, Any]:
        """The last metrics of the best trial."""
        return self.get_best_result().metrics or {}

    @property
    def best_config(self) -> dict[str, Any]:
        """The configuration of the best trial."""
        return self.get_best_result().config or {}

    @property
    def best_checkpoint(self) -> Any:
        """The latest checkpoint of the best trial."""
        return self.get_best_result().checkpoint

    @property
    def best_logdir(self) -> str:
        """The folder of the best trial."""
        return self.get_best_result().path

    @property
    def results_df(self) -> Any:
        """The same as `dataframe()`."""
        return self.get_dataframe()

    def get_best_config(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> Any:
        """The configuration of the best trial by a metric."""
        return self.get_best_result(metric, mode, scope).config

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """A row for each trial."""
        return self.get_dataframe(metric, mode)
