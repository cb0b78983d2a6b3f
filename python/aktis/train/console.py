"""The progress line of a run: in place on a terminal, and nothing elsewhere unless it is asked for."""

import sys
import time
from typing import Any, TextIO

METRICS_MAX = 5
"""Metrics on the line."""

REDRAW_SECONDS = 0.1


class Progress:
    """Shows the last metrics of a run."""

    def __init__(self, verbose: int | None = None, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._terminal = bool(getattr(self._stream, "isatty", lambda: False)())
        self._verbose = 1 if verbose is None else verbose
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._on_line = False
        self.workers = 0

    def show(self, reports: int, metrics: dict[str, Any]) -> None:
        """There is a report."""
        if self._verbose == 0 or not (self._terminal or self._verbose == 2):
            return
        now = time.monotonic()
        if self._terminal and now - self._drawn_at < REDRAW_SECONDS:
            return
        self._drawn_at = now
        line = f"report {reports} · {now - self._began:.1f} s · {self.workers} workers"
        line += "".join(f" · {name} {number(value)}" for name, value in list(metrics.items())[:METRICS_MAX])
        if self._terminal:
            self._stream.write(f"\r\x1b[2K{line}")
            self._on_line = True
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def note(self, text: str) -> None:
        """Something happened that the user should know: to the standard error."""
        if self._verbose != 0:
            self.close()
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leaves the line."""
        if self._on_line:
            self._stream.write("\n")
            self._stream.flush()
            self._on_line = False


def number(value: Any) -> str:
    """A value as a short text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
