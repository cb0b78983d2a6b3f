"""Progress bars that work from tasks and actors: all are drawn together, by the driver.

    from aktis.util.tqdm import tqdm

    @aktis.remote
    def work(name: str) -> None:
        for _ in tqdm(range(1000), desc=name):
            ...

    aktis.get([work.remote("left"), work.remote("right")])

It has the most used part of the interface of the package `tqdm`, which is not needed. In a terminal the
bars stay at the bottom; elsewhere each is a line of text every few seconds and at its end. Import this
module in the driver too: then it listens to the workers.
"""

import operator
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self, TextIO, TypeVar

from aktis.util import _bars

__all__ = ["safe_print", "tqdm", "trange"]

T = TypeVar("T")


class tqdm(Generic[T]):
    """A progress bar: around an iterable, or updated by hand.

        with tqdm(total=100, desc="loading") as bar:
            bar.update(10)

    `total` is taken from the iterable if it has a length. `position` orders several bars.
    `flush_interval_s` is how often, at most, a bar in a worker is sent to the driver. `leave=False` removes
    the bar at its end, `disable=True` shows none. Other arguments of the package `tqdm` are accepted and
    have no effect.
    """

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str | None = None,
        total: float | None = None,
        *,
        unit: str | None = None,
        position: int | None = None,
        leave: bool = True,
        disable: bool = False,
        initial: float = 0,
        flush_interval_s: float | None = None,
        **_ignored: Any,
    ) -> None:
        self._iterable = iterable
        self._disable = disable
        self._interval = 0.1 if flush_interval_s is None else flush_interval_s
        self._start = self._shown_at = time.monotonic()
        if total is None and iterable is not None:
            total = operator.length_hint(iterable) or None
        self._bar = _bars.Bar(
            uuid.uuid4().hex, desc or "", total, unit or "it", initial, position, leave=leave
        )
        self._display = None if disable else _bars.display()
        self.refresh()

    @property
    def n(self) -> float:
        """How far it is."""
        return self._bar.n

    @n.setter
    def n(self, value: float) -> None:
        self._bar.n = value

    @property
    def total(self) -> float | None:
        """How far it goes, if that is known."""
        return self._bar.total

    @total.setter
    def total(self, value: float | None) -> None:
        self._bar.total = value

    @property
    def desc(self) -> str:
        """The text before the bar."""
        return self._bar.desc

    def update(self, n: float = 1) -> None:
        """Moves on by `n`."""
        self._bar.n += n
        clock = time.monotonic()
        if clock - self._shown_at >= self._interval:
            self._show(clock)

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        """Changes the text before the bar."""
        self._bar.desc = desc or ""
        if refresh:
            self.refresh()

    def set_postfix(
        self, ordered_dict: dict[str, Any] | None = None, refresh: bool = True, **values: Any
    ) -> None:
        """Shows names and values behind the bar."""
        self._bar.postfix = ", ".join(
            f"{key}={value}" for key, value in {**(ordered_dict or {}), **values}.items()
        )
        if refresh:
            self.refresh()

    def reset(self, total: float | None = None) -> None:
        """Starts again at 0."""
        self._start = time.monotonic()
        self._bar.n = 0
        if total is not None:
            self._bar.total = total
        self.refresh()

    def refresh(self) -> None:
        """Shows the bar as it is now."""
        self._show(time.monotonic(), now=True)

    def close(self) -> None:
        """The end. The bar stays as it is, or goes with `leave=False`."""
        if not self._bar.closed:
            self._bar.closed = True
            self._bar.elapsed = time.monotonic() - self._start
            if self._display is not None:
                self._display.show(_copy(self._bar), now=True)

    @classmethod
    def write(cls, s: str, file: TextIO | None = None, end: str = "\n") -> None:
        """Prints above the bars."""
        safe_print(s, file=file, end=end)

    def __iter__(self) -> Iterator[T]:
        if self._iterable is None:
            raise TypeError("this bar has nothing to iterate over\nhint: pass an iterable, or call `update`")
        try:
            for item in self._iterable:
                yield item
                self.update(1)
        finally:
            self.close()

    def __len__(self) -> int:
        return int(self._bar.total or 0)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_display") and not sys.is_finalizing():
            self.close()

    def _show(self, clock: float, now: bool = False) -> None:
        self._shown_at = clock
        if self._display is not None and not self._bar.closed:
            self._bar.elapsed = clock - self._start
            self._display.show(_copy(self._bar), now)


def trange(*args: int, **options: Any) -> tqdm[int]:
    """`tqdm(range(*args), **options)`."""
    return tqdm(range(*args), **options)


def safe_print(
    *values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """`print`, above the bars instead of into them; from workers too."""
    _bars.display().print(sep.join(map(str, values)) + end, file or sys.stdout)


def _copy(bar: _bars.Bar) -> _bars.Bar:
    """The display keeps what it was given, to see whether something has changed."""
    return _bars.Bar(**vars(bar))


def _listen() -> None:
    """In a driver, makes the display hear workers from the import of this module on."""
    from aktis import _engine

    if _engine.current() is None or not _engine.context().is_worker:
        _bars.local_display()


_listen()
