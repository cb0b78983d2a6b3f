"""Where progress bars are shown: a display in the driver, and the way to it from workers.

A worker writes the state of a bar into the session's key-value space, at most ten times a second. A thread
of the driver reads it there and draws all bars together, so that they do not overwrite each other. Is there
no display (the driver never imported `aktis.util.tqdm`), a worker prints lines of its own, which reach the
driver like all output.
"""

import json
import math
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from aktis._engine import Runtime

PREFIX = b"tqdm/"
DISPLAY_KEY = PREFIX + b"display"
BAR_PREFIX = PREFIX + b"bar/"
TEXT_PREFIX = PREFIX + b"text/"

_REDRAW_S = 0.1
_IDLE_S = 0.5
_PLAIN_S = 5.0
_WIDTH = 24


@dataclass
class Bar:
    """The state of a bar, as it travels."""

    id: str
    desc: str = ""
    total: float | None = None
    unit: str = "it"
    n: float = 0
    position: int | None = None
    elapsed: float = 0.0
    postfix: str = ""
    leave: bool = True
    closed: bool = False

    def line(self) -> str:
        """The bar as text: `load:  40%|#########-----| 40/100 [00:04<00:06, 10.0 it/s]`."""
        rate = self.n / self.elapsed if self.elapsed > 0 else 0.0
        speed = f"{rate:.1f} {self.unit}/s" if rate >= 1 or rate == 0 else f"{1 / rate:.1f} s/{self.unit}"
        head = f"{self.desc}: " if self.desc else ""
        tail = f", {self.postfix}" if self.postfix else ""
        if not self.total:
            return f"{head}{_number(self.n)} {self.unit} [{_clock(self.elapsed)}, {speed}{tail}]"
        share = min(1.0, self.n / self.total)
        full = int(share * _WIDTH)
        bar = "█" * full + "░" * (_WIDTH - full)
        left = _clock((self.total - self.n) / rate) if rate and self.n <= self.total else "?"
        count = f"{_number(self.n)}/{_number(self.total)}"
        return f"{head}{share:4.0%}|{bar}| {count} [{_clock(self.elapsed)}<{left}, {speed}{tail}]"


class Display:
    """Draws bars: in place at the end of a terminal, or as a line now and then elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._bars: dict[str, Bar] = {}
        self._shown: dict[str, tuple[float, float]] = {}
        """Of each bar, without a terminal: when it was printed last, and at which count."""
        self._lines = 0
        """How many lines at the cursor are ours."""
        self._drawn_at = 0.0

    def show(self, bar: Bar, now: bool = False) -> None:
        """The bar has changed. With `now`, it is drawn even if it was drawn a moment ago."""
        with self._lock:
            self._bars[bar.id] = bar
            if bar.closed:
                self._finish(bar)
            elif not self._interactive():
                self._print_now_and_then(bar)
            elif now or time.monotonic() - self._drawn_at >= _REDRAW_S:
                self._redraw()

    def print(self, text: str, file: TextIO) -> None:
        """Prints above the bars."""
        with self._lock:
            self._erase()
            file.write(text)
            file.flush()
            self._redraw()

    def is_busy(self) -> bool:
        """Whether a bar is shown that is not closed."""
        return bool(self._bars)

    def _finish(self, bar: Bar) -> None:
        del self._bars[bar.id]
        self._shown.pop(bar.id, None)
        self._erase()
        if bar.leave:
            self._write(bar.line() + "\n")
        self._redraw()

    def _print_now_and_then(self, bar: Bar) -> None:
        at, count = self._shown.setdefault(bar.id, (time.monotonic(), bar.n))
        if bar.n != count and time.monotonic() - at >= _PLAIN_S:
            self._shown[bar.id] = (time.monotonic(), bar.n)
            self._write(bar.line() + "\n")

    def _redraw(self) -> None:
        if not self._interactive():
            return
        self._erase()
        bars = sorted(self._bars.values(), key=lambda bar: (bar.position is None, bar.position or 0))
        width = _columns()
        self._write("\n".join(bar.line()[:width] for bar in bars))
        self._lines = len(bars)
        self._drawn_at = time.monotonic()

    def _erase(self) -> None:
        if self._lines:
            up = f"\x1b[{self._lines - 1}A" if self._lines > 1 else ""
            self._write(f"\r{up}\x1b[J")
        self._lines = 0

    def _interactive(self) -> bool:
        stream = self._stream or sys.stderr
        return stream is not None and stream.isatty()

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stderr
        if stream is None:
            return  # Python runs without standard streams.
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            pass  # The terminal is gone, or the stream closed; that must not stop the work.


class DriverDisplay(Display):
    """The display of a driver, with the thread that fetches what workers have written."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._announced: bytes | None = None

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._serve, name="aktis-bars", daemon=True).start()

    def collect(self) -> int:
        """Draws what workers have written. How many changes there were."""
        from aktis import _engine

        session = _engine.current()
        if session is None or session.is_closed():
            return 0
        try:
            with self._lock:
                return self._collect(session)
        except Exception:
            return 0  # The session ended meanwhile.

    def _collect(self, session: "Runtime") -> int:
        if self._announced != session.session_id():
            import atexit

            session.key_put(DISPLAY_KEY, b"1", True)
            self._announced = session.session_id()
            # At the end of the program, what has arrived is drawn a last time; before the session is ended,
            # because this is registered after it.
            atexit.register(self.collect)
        changes = 0
        for key in sorted(session.key_list(TEXT_PREFIX)):
            data = session.key_get(key)
            session.key_delete(key)
            if data is not None:
                self.print(data.decode(), sys.stdout)
                changes += 1
        for key in session.key_list(BAR_PREFIX):
            data = session.key_get(key)
            if data is None:
                continue
            bar = Bar(**json.loads(data))
            if bar.closed:
                session.key_delete(key)
            if bar != self._bars.get(bar.id):
                self.show(bar, now=True)
                changes += 1
        return changes

    def _serve(self) -> None:
        while True:
            self.collect()
            time.sleep(_REDRAW_S if self.is_busy() else _IDLE_S)


class RemoteDisplay:
    """The driver's display, as a worker sees it."""

    def __init__(self, session: "Runtime") -> None:
        self._session = session

    def show(self, bar: Bar, now: bool = False) -> None:
        self._session.key_put(BAR_PREFIX + bar.id.encode(), json.dumps(asdict(bar)).encode(), True)

    def print(self, text: str, file: TextIO) -> None:
        if file is not sys.stdout:
            file.write(text)
            return
        key = TEXT_PREFIX + f"{time.time_ns():020}-{threading.get_native_id()}".encode()
        self._session.key_put(key, text.encode(), True)


_display: Display | None = None
_start_lock = threading.Lock()


def display() -> Display | RemoteDisplay:
    """Where the bars of this process go."""
    from aktis import _engine

    session = _engine.current()
    if session is not None and _engine.context().is_worker and session.key_get(DISPLAY_KEY) is not None:
        return RemoteDisplay(session)
    return local_display()


def local_display() -> Display:
    """The display of this process; in a driver, workers are heard from then on."""
    global _display
    from aktis import _engine

    with _start_lock:
        if _display is None:
            if _engine.current() is not None and _engine.context().is_worker:
                _display = Display()
            else:
                _display = driver = DriverDisplay()
                driver.start()
        return _display


def print_above(text: str, file: TextIO) -> None:
    """Prints so that the bars of this process, if it shows some, are not broken."""
    shown = _display
    if shown is not None and shown.is_busy():
        shown.print(text, file)
    else:
        file.write(text)
        file.flush()


def _columns() -> int:
    import shutil

    # The last column stays free: a terminal may begin a new line after it.
    return max(20, shutil.get_terminal_size().columns - 1)


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) and not value.is_integer() else str(int(value))
