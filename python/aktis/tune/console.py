"""The live table of an experiment: on a terminal, and nothing elsewhere unless it is asked for."""

import shutil
import sys
import time
from collections import Counter
from typing import TextIO

from aktis.train.console import number
from aktis.tune.space import leaves
from aktis.tune.trial import ERROR, RUNNING, Trial

ROWS_MAX = 20
COLUMNS_MAX = 5
"""Parameters in the table."""

REDRAW_SECONDS = 0.5


class Table:
    """Shows the trials of an experiment."""

    def __init__(self, verbose: int | None, metric: str | None, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._metric = metric
        self._terminal = bool(getattr(self._stream, "isatty", lambda: False)())
        self._verbose = 1 if verbose is None else verbose
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._lines = 0

    def show(self, trials: list[Trial]) -> None:
        """Draws the table in place, if it is time to."""
        now = time.monotonic()
        if self._terminal and self._verbose and now - self._drawn_at >= REDRAW_SECONDS:
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
        order = {RUNNING: 0, ERROR: 1}
        shown = sorted(trials, key=lambda trial: (order.get(trial.status, 2), trial.number))[:ROWS_MAX]
        if not shown:
            return lines[0]
        paths = [path for path, _ in leaves(shown[0].config)][:COLUMNS_MAX]
        names = ["trial", "status", *("/".join(map(str, path)) for path in paths), "iteration"]
        rows = [names + ([self._metric] if self._metric else [])]
        for trial in shown:
            values = dict(leaves(trial.config))
            row = [trial.name, trial.status, *(number(values.get(path, "")) for path in paths)]
            row.append(str(trial.last_result.get("training_iteration", 0)))
            if self._metric:
                row.append(number(trial.last_result.get(self._metric, "")))
            rows.append(row)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        limit = shutil.get_terminal_size().columns - 1
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths))[:limit] for row in rows]
        if len(trials) > ROWS_MAX:
            lines.append(f"... and {len(trials) - ROWS_MAX} more")
        return "\n".join(lines)
