"""The arithmetic of `bench learning`: advantages, marks, the file and the pictures."""

import json
from pathlib import Path
from xml.etree import ElementTree

import plots
import results
from catalogue import ROWS
from results import Demand, Figure

FAST = Figure(
    "fast", "1/s", {"aktis": 30.0, "Ray": 10.0, "rlox": None}, (Demand(3, "Ray"), Demand(3, "rlox"))
)
SHORT = Figure("short", "s", {"aktis": 2.0, "SB3": 10.0}, (Demand(60, goal=5),), less_is_better=True)


def test_advantage_is_above_one_where_aktis_is_better():
    assert FAST.advantage("Ray") == 3
    assert SHORT.advantage("SB3") == 5
    assert FAST.advantage("rlox") is None


def test_marks_follow_the_demands():
    assert [FAST.mark(demand) for demand in FAST.demands] == ["ok", "no peer"]
    assert FAST.mark(Demand(3.1, "Ray")) == "MISSED"
    assert FAST.mark(Demand(goal=31)) == "ok" and FAST.mark(Demand(goal=30)) == "goal"
    assert SHORT.mark(Demand(60, goal=5)) == "goal"
    assert SHORT.mark(Demand(60, goal=1)) == "ok"
    assert SHORT.mark(Demand(1.9)) == "MISSED"


def test_a_row_without_a_value_of_ours_is_missed():
    assert Figure("none", "s", {"aktis": None}).mark(Demand(1)) == "MISSED"


def test_figures_survive_the_file(tmp_path: Path):
    results.finish([FAST, SHORT], tmp_path / "figures.json")
    assert results.read(json.loads((tmp_path / "figures.json").read_text())) == [FAST, SHORT]


def test_pictures_are_svg_with_a_bar_for_each_measured_peer(tmp_path: Path):
    results.finish([FAST, SHORT], tmp_path / "figures.json")
    records = {"simulate_x": json.loads((tmp_path / "figures.json").read_text())}
    [file] = plots.draw(records, tmp_path)
    texts = [element.text for element in ElementTree.parse(file).iter() if element.text]
    assert "fast: Ray" in texts and "short: SB3" in texts and "fast: rlox" not in texts


def test_every_row_has_its_program():
    assert all((Path(__file__).parent / row.program).exists() for row in ROWS)
