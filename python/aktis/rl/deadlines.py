"""Deadlines for what an environment does: a step, a reset or its constructor that takes too long is ended.

While environments are stepped, a timer of the operating system ticks, and each tick looks how long the call
under way has taken: a step itself only takes note of the time. A tick interrupts Python code and waiting
calls of the main thread, in the driver as in a worker. Native code that never returns cannot be interrupted:
a worker that is stuck in such code ends its process, and the driver reports the worker's death.
"""

import faulthandler
import math
import signal
import threading
import time
from typing import Any

STDERR = 2
#: Ticks per deadline: a call ends after one deadline and one tick at the latest.
TICKS_PER_DEADLINE = 4
#: A worker's process ends when no tick could run for this many deadlines.
EXIT_AFTER_DEADLINES = 1.5


class DeadlineOverrun(BaseException):
    """A call took longer than its deadline. Not an Exception: environments must not catch it by accident."""


class Deadline:
    """Ends a `with` block that takes longer than `seconds` by a DeadlineOverrun.

    The first block starts the timer; `rest` stops it, and must come after the last block. A Deadline has no
    effect where the timer cannot be had: outside of the main thread, and in a program that uses SIGALRM
    itself. `exits` allows to end the process when native code does not return.
    """

    def __init__(self, seconds: float, exits: bool = False) -> None:
        self.seconds = seconds
        self._exits = exits
        self._ticking = False
        self._began_at = math.inf

    def __enter__(self) -> None:
        if not self._ticking:
            self._start()
        self._began_at = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._began_at = math.inf

    def rest(self) -> None:
        """Stops the timer."""
        if self._ticking:
            self._ticking = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            if self._exits:
                faulthandler.cancel_dump_traceback_later()

    def _start(self) -> None:
        if (
            math.isfinite(self.seconds)
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        ):
            self._ticking = True
            signal.signal(signal.SIGALRM, self._tick)
            tick = self.seconds / TICKS_PER_DEADLINE
            signal.setitimer(signal.ITIMER_REAL, tick, tick)
            self._postpone_exit()

    def _tick(self, number: int, frame: Any) -> None:
        self._postpone_exit()
        if time.monotonic() - self._began_at > self.seconds:
            self._began_at = math.inf
            raise DeadlineOverrun

    def _postpone_exit(self) -> None:
        if self._exits:
            after = self.seconds * EXIT_AFTER_DEADLINES
            faulthandler.dump_traceback_later(after, exit=True, file=STDERR)
