"""Draws the figures of `run.py --json FILE` as SVG: bars of how many times as good as each peer Aktis is.

usage: python benches/learning/plots.py FILE FOLDER
"""

import json
import math
import sys
from html import escape
from pathlib import Path
from typing import Any

import results

#: One picture for each group of rows: its file, its title, and how the names of its rows begin.
PICTURES = (
    ("learning-simulate.svg", "Steps per second: Aktis against each peer", ("simulate", "mujoco")),
    ("learning-collective.svg", "Time of an allreduce: Aktis against each peer", ("collective",)),
    ("learning-train.svg", "Training: Aktis against each peer", ("train", "rl")),
)
WIDTH, LEFT, RIGHT, TOP, LINE = 860, 470, 70, 48, 24
BAR, ONE, TEXT = "#3b6ea5", "#b03a2e", "#555555"


def draw(records: dict[str, list[dict[str, Any]]], folder: Path) -> list[Path]:
    """Writes the pictures for which there are figures; their files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file, title, beginnings in PICTURES:
        bars = []
        for row, found in records.items():
            if row.startswith(beginnings):
                bars += bars_of(results.read(found))
        if bars:
            (folder / file).write_text(picture(title, bars))
            written.append(folder / file)
    return written


def bars_of(figures: list[results.Figure]) -> list[tuple[str, float]]:
    """A bar for each peer that was measured: its text, and how many times as good as it Aktis is."""
    found = []
    for figure in figures:
        for peer in figure.values:
            advantage = figure.advantage(peer) if peer != results.OURS else None
            if advantage is not None:
                found.append((f"{figure.name}: {peer}", advantage))
    return found


def picture(title: str, bars: list[tuple[str, float]]) -> str:
    """The bars on a logarithmic scale, with a line where both are equal."""
    low = math.floor(min(0.0, *(math.log10(value) for _, value in bars)))
    high = max(1, math.ceil(max(math.log10(value) for _, value in bars)))

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    height = TOP + LINE * len(bars) + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        '<g font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="15">{escape(title)}</text>',
    ]
    bottom = TOP + LINE * len(bars)
    for power in range(low, high + 1):
        place, colour = x(10.0**power), ONE if power == 0 else "#dddddd"
        parts.append(
            f'<line x1="{place:.1f}" y1="{TOP - 6}" x2="{place:.1f}" y2="{bottom}" stroke="{colour}"/>'
        )
        label = f"{10.0**power:g} x"
        parts.append(
            f'<text x="{place:.1f}" y="{bottom + 16}" text-anchor="middle" fill="{TEXT}">{label}</text>'
        )
    for index, (text, value) in enumerate(bars):
        y = TOP + LINE * index
        start, end = sorted((x(1.0), x(value)))
        parts.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(text)}</text>')
        parts.append(
            f'<rect x="{start:.1f}" y="{y + 2}" width="{end - start:.1f}" height="14" fill="{BAR}"/>'
        )
        parts.append(f'<text x="{end + 5:.1f}" y="{y + 13}" fill="{TEXT}">{results.number(value)} x</text>')
    return "\n".join([*parts, "</g></svg>"]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for file in draw(json.loads(Path(sys.argv[1]).read_text())["rows"], Path(sys.argv[2])):
        print(f"wrote {file}")
