"""The live table of an experiment: on a terminal, and nothing elsewhere unless it is asked for."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from aktis.train.config import check_count, check_mode
from aktis.train.console import number
from aktis.train.storage import is_number
from aktis.tune.space import leaves
from aktis.tune.trial import ERROR, RUNNING, Trial

ROWS_MAX = 20
COLUMNS_MAX = 5
"""Parameters in the table."""

REDRAW_SECONDS = 0.5

Columns = Sequence[str] | Mapping[str, str] | None
"""Names of columns, or their titles by name."""


@dataclass(frozen=True, kw_only=True)
class CLIReporter:
    """What the table shows: `RunConfig(progress_reporter=CLIReporter(metric_columns=["loss"]))`.

    Columns are names, or a dictionary with their titles; those of parameters in dictionaries have a slash
    (`"optimizer/rate"`).
    """

    metric_columns: Columns = None
    """Without it the metric of the `TuneConfig`."""
    parameter_columns: Columns = None
    """Without it the first five parameters."""
    max_progress_rows: int = ROWS_MAX
    max_report_frequency: float = REDRAW_SECONDS
    """Seconds between two tables."""
    sort_by_metric: bool = False
    """The best trial first, instead of those that run."""
    metric: str | None = None
    """For `sort_by_metric`; without it and `mode`, those of the `TuneConfig`."""
    mode: str | None = None

    def __post_init__(self) -> None:
        check_count("max_progress_rows", self.max_progress_rows, 1)
        if self.mode is not None:
            check_mode("mode", self.mode)
        for name in ("metric_columns", "parameter_columns"):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, Sequence | Mapping | None):
                raise TypeError(
                    f"`{name}` must be a list of names or a dictionary of titles, got {value!r}"
                    "\nhint: for example ['loss']"
                )


class Table:
    """Shows the trials of an experiment."""

    def __init__(
        self,
        verbose: int | None,
        metric: str | None,
        stream: TextIO | None = None,
        *,
        mode: str | None = None,
        reporter: CLIReporter | None = None,
    ) -> None:
        self._stream = stream or sys.stdout
        self._reporter = reporter or CLIReporter()
        self._metrics = titles(self._reporter.metric_columns or ([metric] if metric else []))
        self._sort_metric = self._reporter.metric or metric
        self._sort_mode = self._reporter.mode or mode
        self._terminal = bool(getattr(self._stream, "isatty", lambda: False)())
        self._verbose = 1 if verbose is None else verbose
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._lines = 0

    def show(self, trials: list[Trial]) -> None:
        """Draws the table in place, if it is time to."""
        now = time.monotonic()
        if self._terminal and self._verbose and now - self._drawn_at >= self._reporter.max_report_frequency:
            self._drawn_at = now
            self._draw(self.text(trials))

    def close(self, trials: list[Trial]) -> None:
        """Draws the last table."""
        if self._verbose == 2 or (self._terminal and self._verbose):
            self._draw(self.text(trials))
            self._lines = 0

    def note(self, line: str) -> None:
        """Something happened that the user should know: to the standard error."""
        if self._verbose:
            self._lines = 0
            print(line, file=sys.stderr, flush=True)

    def _draw(self, text: str) -> None:
        up = f"\x1b[{self._lines}F\x1b[J" if self._lines and self._terminal else ""
        self._stream.write(f"{up}{text}\n")
        self._stream.flush()
        self._lines = text.count("\n") + 1

    def text(self, trials: list[Trial]) -> str:
        """The table: a line about all, then a row for each trial, those that run first."""
        counts = Counter(trial.status for trial in trials)
        head = " · ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items()))
        lines = [f"trials: {head or 'none'} · {time.monotonic() - self._began:.0f} s"]
        most = self._reporter.max_progress_rows
        shown = sorted(trials, key=self._place)[:most]
        if not shown:
            return lines[0]
        parameters = self._parameters(shown[0])
        rows = [["trial", "status", *parameters.values(), "iteration", *self._metrics.values()]]
        for trial in shown:
            values = {"/".join(map(str, path)): value for path, value in leaves(trial.config)}
            row = [trial.name, trial.status, *(number(values.get(name, "")) for name in parameters)]
            row.append(str(trial.last_result.get("training_iteration", 0)))
            rows.append(row + [number(trial.last_result.get(name, "")) for name in self._metrics])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        limit = shutil.get_terminal_size().columns - 1
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths))[:limit] for row in rows]
        if len(trials) > most:
            lines.append(f"... and {len(trials) - most} more")
        return "\n".join(lines)

    def _place(self, trial: Trial) -> tuple[float, int]:
        """Sorts the trials: those that run first, or the best."""
        if not self._reporter.sort_by_metric:
            return {RUNNING: 0, ERROR: 1}.get(trial.status, 2), trial.number
        value: Any = trial.last_result.get(self._sort_metric or "")
        if not is_number(value):
            return float("inf"), trial.number
        return (float(value) if self._sort_mode == "min" else -float(value)), trial.number

    def _parameters(self, trial: Trial) -> dict[str, str]:
        """The parameters that have a column, and their titles."""
        if self._reporter.parameter_columns is not None:
            return titles(self._reporter.parameter_columns)
        return titles(["/".join(map(str, path)) for path, _ in leaves(trial.config)][:COLUMNS_MAX])


def titles(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The titles of columns by their names."""
    if isinstance(columns, Mapping):
        return dict(columns)
    return {name: name for name in columns}
