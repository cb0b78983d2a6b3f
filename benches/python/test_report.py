"""The arithmetic of the benchmark: ratios within rounds, marks, and what is printed."""

import json

from figure import Demand, Figure, Shape
from report import failures, json_lines, number, table


def figure(shape: Shape, **rounds: list[float]) -> Figure:
    made = Figure(shape)
    for peer, values in rounds.items():
        for position, value in enumerate(values):
            made.add(peer, position, value)
    return made


FAST = Shape("fast", "fast things", "1/s", (Demand("ray", 10, 30), Demand("multiprocessing", 1)))
SMALL = Shape("small", "small things", "MB", (Demand("ray", 0.25),), less_is_better=True)


def test_a_ratio_compares_within_rounds():
    # The machine was slow in the second round, for both; that says nothing about either.
    made = figure(FAST, aktis=[200, 20, 210], ray=[10, 1, 10])
    assert made.ratio("ray") == 20
    assert made.measured("aktis") == 200
    assert made.ratio("dask") is None


def test_a_round_that_failed_does_not_shift_the_others():
    made = figure(FAST, aktis=[100, 200], ray=[10])
    made.rounds["ray"] = {1: 10}
    assert made.ratio("ray") == 20


def test_marks():
    for value, mark in [(300, "goal"), (299, "ok"), (100, "ok"), (99, "MISSED")]:
        made = figure(FAST, aktis=[value], ray=[10], multiprocessing=[100])
        assert made.mark(FAST.demands[0]) == mark
    assert made.mark(FAST.demands[1]) == "MISSED"
    for value, mark in [(10, "ok"), (11, "MISSED")]:
        assert figure(SMALL, aktis=[value], ray=[40]).mark(SMALL.demands[0]) == mark
    assert figure(FAST, ray=[40]).mark(FAST.demands[0]) == "", "nothing was measured"


def test_a_failure_of_ours_is_missed():
    made = figure(FAST, ray=[10])
    made.failures["aktis"] = "it broke"
    assert made.mark(FAST.demands[0]) == "MISSED"
    assert "it broke" in failures([made, made]) and failures([made, made]).count("it broke") == 1
    assert "failed" in table([made], ["aktis", "ray"])


def test_the_table_has_a_line_for_each_demand():
    text = table(
        [figure(FAST, aktis=[4000], ray=[100], multiprocessing=[2000])], ["aktis", "ray", "multiprocessing"]
    )
    lines = text.splitlines()
    assert lines[2].split() == [
        "fast",
        "things",
        "1/s",
        "4,000",
        "100",
        "2,000",
        "40.0",
        "2.00",
        "10",
        "x",
        "ray",
        "30",
        "goal",
    ]
    assert lines[3].split() == ["1", "x", "multiprocessing", "ok"]
    assert lines[-1] == "2 of 2 reached, 1 of them with the goal; 0 missed"


def test_numbers_have_the_digits_that_mean_something():
    assert [number(value) for value in (1234567.0, 99.94, 1.234, 0.1234, None)] == [
        "1,234,567",
        "99.9",
        "1.23",
        "0.123",
        "",
    ]


def test_the_file_has_one_object_in_each_line():
    [line] = json_lines([figure(SMALL, aktis=[5, 7], ray=[40, 40])]).splitlines()
    record = json.loads(line)
    assert record["measured"] == {"aktis": 6, "ray": 40}
    assert record["demands"] == [
        {"peer": "ray", "at_least": 0.25, "goal": None, "reached": 0.15, "mark": "ok"}
    ]
