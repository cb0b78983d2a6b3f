"""A figure: what one row gives, how each peer did in each round, and what is asked of Aktis."""

import statistics
from dataclasses import dataclass, field

#: In the order in which a round goes through them, and in which the table shows them.
PEERS = ("aktis", "ray", "dask", "multiprocessing")


@dataclass(frozen=True)
class Demand:
    """What Aktis has to reach: a ratio to a peer, or a value if `peer` is empty.

    `at_least` and `goal` are speed-ups where more is better; where less is better they are upper limits.
    """

    peer: str
    at_least: float
    goal: float | None = None


@dataclass(frozen=True)
class Shape:
    """What a figure is, before anything is measured."""

    key: str
    """What a row's functions name it."""
    title: str
    unit: str
    demands: tuple[Demand, ...] = ()
    less_is_better: bool = False


@dataclass
class Figure:
    """A shape, and what was measured: for each peer a value by the number of the round."""

    shape: Shape
    rounds: dict[str, dict[int, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, peer: str, number: int, value: float) -> None:
        self.rounds.setdefault(peer, {})[number] = value

    def measured(self, peer: str) -> float | None:
        """The median of the rounds."""
        values = self.rounds.get(peer)
        return statistics.median(values.values()) if values else None

    def ratio(self, peer: str) -> float | None:
        """Aktis divided by `peer`, both from the same round; the median of the rounds."""
        ours, theirs = self.rounds.get("aktis", {}), self.rounds.get(peer, {})
        ratios = [value / theirs[number] for number, value in ours.items() if theirs.get(number)]
        return statistics.median(ratios) if ratios else None

    def reached(self, demand: Demand) -> float | None:
        """What is compared with the demand."""
        return self.ratio(demand.peer) if demand.peer else self.measured("aktis")

    def mark(self, demand: Demand) -> str:
        """`goal`, `ok` or `MISSED`; nothing if it was not measured."""
        value = self.reached(demand)
        if value is None:
            return "MISSED" if "aktis" in self.failures else ""

        def suffices(limit: float) -> bool:
            return value <= limit if self.shape.less_is_better else value >= limit

        if demand.goal is not None and suffices(demand.goal):
            return "goal"
        return "ok" if suffices(demand.at_least) else "MISSED"
