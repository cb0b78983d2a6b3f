"""The figures of a row: what was measured with each peer, what is asked of Aktis, and whether it is reached.

A row program gives its figures to `finish`, which prints them and writes the file that `run.py` reads.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OURS = "aktis"


@dataclass(frozen=True)
class Demand:
    """Aktis has to be `at_least` times as good as `peer`; without a peer, its value has to reach `at_least`.

    With `less_is_better`, as good means as short or as small, and a value without a peer is a limit. Without
    `at_least`, there is only a goal.
    """

    at_least: float | None = None
    peer: str | None = None
    goal: float | None = None


@dataclass(frozen=True)
class Figure:
    """One line of the table. The value of a peer that could not be measured is None."""

    name: str
    unit: str
    values: Mapping[str, float | None]
    demands: tuple[Demand, ...] = ()
    less_is_better: bool = False
    remark: str = ""
    #: Single measurements by peer, for plots.
    samples: Mapping[str, list[float]] = field(default_factory=dict)

    def advantage(self, peer: str) -> float | None:
        """How many times as good as the peer Aktis is."""
        ours, theirs = self.values.get(OURS), self.values.get(peer)
        if ours is None or theirs is None or not math.isfinite(ours) or min(ours, theirs) <= 0:
            return None
        return theirs / ours if self.less_is_better else ours / theirs

    def mark(self, demand: Demand) -> str:
        """`goal`, `ok`, `MISSED`, or `no peer` where the peer was not measured."""
        ours = self.values.get(OURS)
        if ours is None or not math.isfinite(ours):
            return "MISSED"
        reached: float | None = ours
        sign = -1 if self.less_is_better and demand.peer is None else 1
        if demand.peer is not None:
            reached = self.advantage(demand.peer)
        if reached is None:
            return "no peer"
        if demand.goal is not None and sign * reached >= sign * demand.goal:
            return "goal"
        return "ok" if demand.at_least is None or sign * reached >= sign * demand.at_least else "MISSED"


def number(value: float | None) -> str:
    """Three digits, or all before the point."""
    if value is None:
        return "not measured"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def wanted(figure: Figure, demand: Demand) -> str:
    """The demand in words."""
    sign = "<=" if figure.less_is_better and demand.peer is None else ">="
    unit = f"x {demand.peer}" if demand.peer is not None else figure.unit
    parts = [f"{sign} {number(demand.at_least)} {unit}"] if demand.at_least is not None else []
    if demand.goal is not None:
        parts.append(f"goal {number(demand.goal)} {unit}")
    return ", ".join(parts)


def lines(figures: Iterable[Figure]) -> list[str]:
    """The figures as text: a line for each, then a line for each peer and for each demand without one."""
    text = []
    for figure in figures:
        text.append(f"{figure.name}: {number(figure.values.get(OURS))} {figure.unit}")
        demands = {demand.peer: demand for demand in figure.demands}
        for peer, value in figure.values.items():
            if peer == OURS:
                continue
            shown = f"  {peer}: {number(value)}"
            if (advantage := figure.advantage(peer)) is not None:
                shown += f"; aktis is {number(advantage)} times as good"
            if peer in demands:
                shown += f"  [{wanted(figure, demands[peer])}: {figure.mark(demands[peer])}]"
            text.append(shown)
        for demand in figure.demands:
            if demand.peer is None:
                text.append(f"  [{wanted(figure, demand)}: {figure.mark(demand)}]")
        if figure.remark:
            text.append(f"  {figure.remark}")
    return text


def finish(figures: list[Figure], file: Path | None) -> int:
    """Prints the figures and writes them to the file; the exit status of a row that came to its end."""
    print("\n".join(lines(figures)), flush=True)
    if file is not None:
        file.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    return 0


def read(records: list[dict[str, Any]]) -> list[Figure]:
    """The figures of a file that `finish` wrote."""
    return [
        Figure(**{**record, "demands": tuple(Demand(**demand) for demand in record["demands"])})
        for record in records
    ]
