"""What people and programs read: the table, and the file."""

import json
from collections.abc import Sequence

from figure import PEERS, Demand, Figure


def number(value: float | None) -> str:
    """With as many digits as mean something, and thousands apart."""
    if value is None:
        return ""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"


def table(figures: Sequence[Figure], peers: Sequence[str]) -> str:
    """One line for each figure, and for each demand after its first."""
    others = [peer for peer in peers if peer != "aktis"]
    headings = ["figure", "unit", "aktis", *others, *(f"x {peer}" for peer in others), "wanted", "goal", ""]
    lines = [headings]
    marks: list[str] = []
    for figure in figures:
        demands: Sequence[Demand | None] = figure.shape.demands or (None,)
        for position, demand in enumerate(demands):
            first = position == 0
            line = [figure.shape.title if first else "", figure.shape.unit if first else ""]
            for peer in ["aktis", *others]:
                failed = "failed" if peer in figure.failures else ""
                line.append((failed or number(figure.measured(peer))) if first else "")
            line += [number(figure.ratio(peer)) if first else "" for peer in others]
            line += demand_cells(figure, demand)
            marks.append(line[-1])
            lines.append(line)
    text = aligned(lines, numbers=range(2, 3 + 2 * len(others)))
    good = marks.count("goal") + marks.count("ok")
    total = good + marks.count("MISSED")
    goals = marks.count("goal")
    return f"{text}\n{good} of {total} reached, {goals} of them with the goal; {total - good} missed"


def demand_cells(figure: Figure, demand: Demand | None) -> list[str]:
    if demand is None:
        return ["", "", ""]
    sign = "<= " if figure.shape.less_is_better else ""
    unit = f" x {demand.peer}" if demand.peer else f" {figure.shape.unit}"
    goal = "" if demand.goal is None else f"{sign}{demand.goal:g}"
    return [f"{sign}{demand.at_least:g}{unit}", goal, figure.mark(demand)]


def aligned(lines: Sequence[Sequence[str]], numbers: range) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ""
    for index, line in enumerate(lines):
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        text += "  ".join(cells).rstrip() + "\n"
        if index == 0:
            text += "  ".join("-" * width for width in widths).rstrip() + "\n"
    return text


def failures(figures: Sequence[Figure]) -> str:
    """Why peers have no value, each reason once."""
    reasons: dict[str, None] = {}
    for figure in figures:
        for peer, reason in figure.failures.items():
            reasons[f"{peer}: {reason}"] = None
    return "\n".join(reasons)


def json_lines(figures: Sequence[Figure]) -> str:
    """The figures for programs: one JSON object in each line."""
    text = ""
    for figure in figures:
        record = {
            "figure": figure.shape.key,
            "title": figure.shape.title,
            "unit": figure.shape.unit,
            "less_is_better": figure.shape.less_is_better,
            "measured": {peer: figure.measured(peer) for peer in PEERS if peer in figure.rounds},
            "ratios": {peer: figure.ratio(peer) for peer in PEERS[1:] if peer in figure.rounds},
            "rounds": {peer: list(values.values()) for peer, values in figure.rounds.items()},
            "failures": figure.failures,
            "demands": [
                {
                    "peer": demand.peer or None,
                    "at_least": demand.at_least,
                    "goal": demand.goal,
                    "reached": figure.reached(demand),
                    "mark": figure.mark(demand),
                }
                for demand in figure.shape.demands
            ],
        }
        text += json.dumps(record) + "\n"
    return text
