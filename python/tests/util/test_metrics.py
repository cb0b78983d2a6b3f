"""Metrics: counting, tags, what is refused, the text format, and sums over processes."""

import uuid
from typing import Any

import pytest

import aktis
from aktis.util import metrics
from aktis.util.metrics import Counter, Gauge, Histogram
from support import wait_until


def fresh(prefix: str = "metric") -> str:
    """A name that no other test has: a process has one set of metrics."""
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


def series(name: str, cluster: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = metrics.snapshot(cluster).get(name, {}).get("series", [])
    return found


def test_a_counter_grows() -> None:
    counter = Counter(fresh(), description="how many", tag_keys=("kind",))
    counter.inc(tags={"kind": "a"})
    counter.inc(2.5, tags={"kind": "a"})
    counter.inc(tags={"kind": "b"})
    assert series(counter.info["name"]) == [
        {"tags": {"kind": "a"}, "value": 3.5},
        {"tags": {"kind": "b"}, "value": 1.0},
    ]
    for value in (0, -1):
        with pytest.raises(ValueError):
            counter.inc(value, tags={"kind": "a"})
    with pytest.raises(TypeError):
        counter.inc("1", tags={"kind": "a"})  # type: ignore[arg-type]


def test_a_gauge_holds_the_last_value() -> None:
    gauge = Gauge(fresh())
    gauge.set(3)
    gauge.set(-1.5)
    assert series(gauge.info["name"]) == [{"tags": {}, "value": -1.5}]
    gauge.set(None)
    assert series(gauge.info["name"]) == []


def test_a_histogram_counts_what_is_at_most_as_large() -> None:
    histogram = Histogram(fresh(), boundaries=[1, 10, 100])
    for value in (0.5, 1, 5, 50, 500):
        histogram.observe(value)
    (found,) = series(histogram.info["name"])
    assert found["buckets"] == [(1.0, 2), (10.0, 3), (100.0, 4)]
    assert (found["count"], found["sum"]) == (5, 556.5)
    assert histogram.info["boundaries"] == [1, 10, 100]


@pytest.mark.parametrize("boundaries", [None, [], [0, 1], [-1, 1], [2, 1], [1, 1]], ids=repr)
def test_bad_boundaries(boundaries: Any) -> None:
    with pytest.raises(ValueError):
        Histogram(fresh(), boundaries=boundaries)


def test_tags_are_checked() -> None:
    counter = Counter(fresh(), tag_keys=("a", "b"))
    with pytest.raises(ValueError, match="'b'"):
        counter.inc(tags={"a": "1"})
    with pytest.raises(ValueError, match="'c'"):
        counter.inc(tags={"a": "1", "b": "2", "c": "3"})
    with pytest.raises(TypeError, match="'b'"):
        counter.inc(tags={"a": "1", "b": 2})  # type: ignore[dict-item]
    with pytest.raises(ValueError):
        counter.set_default_tags({"c": "3"})
    counter.set_default_tags({"a": "1", "b": "2"})
    counter.inc(tags={"b": "3"})
    assert series(counter.info["name"]) == [{"tags": {"a": "1", "b": "3"}, "value": 1.0}]
    assert counter.info["default_tags"] == {"a": "1", "b": "2"}


def test_names_are_checked() -> None:
    for bad in ("", None, 1):
        with pytest.raises(ValueError):
            Counter(bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Counter(fresh(), tag_keys="kind")
    with pytest.raises(TypeError):
        Counter(fresh(), tag_keys=(1,))  # type: ignore[arg-type]


def test_the_same_name_is_the_same_metric() -> None:
    name = fresh()
    Counter(name).inc()
    Counter(name).inc()
    assert series(name) == [{"tags": {}, "value": 2.0}]
    with pytest.raises(ValueError, match="another counter"):
        Gauge(name)


def test_exposition() -> None:
    counter = Counter(fresh("requests served"), description='says "hi"', tag_keys=("path",))
    counter.inc(2, tags={"path": 'a"b\\c\n'})
    histogram = Histogram(fresh("latency"), boundaries=[1, 2])
    histogram.observe(1.5)
    lines = metrics.exposition().splitlines()
    name = counter.info["name"].replace(" ", "_")
    assert f"# TYPE {name} counter" in lines
    assert f'# HELP {name} says \\"hi\\"' in lines
    assert f'{name}{{path="a\\"b\\\\c\\n"}} 2.0' in lines
    name = histogram.info["name"]
    for line in (
        f'{name}_bucket{{le="1.0"}} 0',
        f'{name}_bucket{{le="2.0"}} 1',
        f'{name}_bucket{{le="+Inf"}} 1',
        f"{name}_sum 1.5",
        f"{name}_count 1",
    ):
        assert line in lines


def test_sums_over_processes(shared_session: Any) -> None:
    counter = Counter(fresh(), tag_keys=("who",)).set_default_tags({"who": "all"})
    histogram = Histogram(fresh(), boundaries=[10])
    gauge = Gauge(fresh())
    gauge.set(1)

    @aktis.remote(num_cpus=0)
    class Worker:
        def count(self, number: int) -> None:
            counter.inc(number)  # type: ignore[attr-defined]
            histogram.observe(number)
            gauge.set(number)

    workers = [Worker.remote() for _ in range(2)]
    counter.inc(1)  # type: ignore[attr-defined]
    for number, worker in enumerate(workers, start=10):
        aktis.get(worker.count.remote(number))
    name = counter.info["name"]
    wait_until(lambda: series(name, cluster=True) == [{"tags": {"who": "all"}, "value": 22.0}], pause=0.1)
    (found,) = series(histogram.info["name"], cluster=True)
    assert found["buckets"] == [(10.0, 1)]
    assert (found["count"], found["sum"]) == (2, 21.0)
    assert series(gauge.info["name"], cluster=True) == [{"tags": {}, "value": 11.0}]
    # What a process counted stays after its end.
    for worker in workers:
        aktis.kill(worker)
    assert series(name, cluster=True) == [{"tags": {"who": "all"}, "value": 22.0}]
    assert f'{name}{{who="all"}} 22.0' in metrics.exposition(cluster=True)
