"""Counters, gauges and histograms of an application, from any task, actor or driver.

    requests = Counter("requests", description="Requests served", tag_keys=("model",))
    requests.inc(tags={"model": "resnet"})

    latency = Histogram("latency_ms", boundaries=[1, 10, 100])
    latency.observe(12.5)

    print(exposition())            # of this process, as text that Prometheus reads
    print(exposition(cluster=True))  # of all processes of the session

Each process keeps its own numbers. When they have changed, a thread writes them into the session's
key-value space within a quarter of a second, where `snapshot(cluster=True)` adds them up: counters and
histograms are summed, of a gauge the value that was set last counts. What a process counted stays after its
end.
"""

import atexit
import bisect
import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from aktis.util._runtime import runtime

__all__ = ["Counter", "Gauge", "Histogram", "Metric", "exposition", "flush", "snapshot"]

Tags = tuple[tuple[str, str], ...]

_PREFIX = b"metrics/"
_PAUSE_S = 0.25


class Metric:
    """What the three kinds have in common: a name, a description, and tags that tell series apart."""

    kind = ""

    def __init__(self, name: str, description: str = "", tag_keys: Iterable[str] | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f'the name of a metric is {name!r}\nhint: use text such as "requests"')
        if isinstance(tag_keys, str):
            raise TypeError(f'`tag_keys` is the text {tag_keys!r}\nhint: use a tuple, ("model",) for one key')
        keys = tuple(tag_keys or ())
        for key in keys:
            if not isinstance(key, str):
                raise TypeError(f"the tag key {key!r} is no text")
        self._name = name
        self._description = description
        self._tag_keys = keys
        self._default_tags: dict[str, str] = {}
        self._series = _registry.series(self)

    def set_default_tags(self, default_tags: dict[str, str]) -> "Metric":
        """Tags that hold where a call does not say otherwise. Returns the metric."""
        self._check_tags(default_tags)
        self._default_tags = dict(default_tags)
        return self

    @property
    def info(self) -> dict[str, Any]:
        """`name`, `description`, `tag_keys` and `default_tags`."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": dict(self._default_tags),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, tag_keys={self._tag_keys})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process counts on its own, under the same name.
        return _revive, (type(self), self._arguments(), self._default_tags)

    def _arguments(self) -> dict[str, Any]:
        return {"name": self._name, "description": self._description, "tag_keys": self._tag_keys}

    def _tags(self, tags: dict[str, str] | None) -> Tags:
        if tags is not None:
            self._check_tags(tags)
        merged = {**self._default_tags, **(tags or {})}
        missing = [key for key in self._tag_keys if key not in merged]
        if missing:
            raise ValueError(
                f"the metric {self._name!r} lacks a value for the tag {missing[0]!r}\n"
                "hint: pass `tags=` in the call, or set it with `set_default_tags`"
            )
        return tuple(sorted(merged.items()))

    def _check_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            if key not in self._tag_keys:
                raise ValueError(
                    f"the metric {self._name!r} has no tag {key!r}\nhint: it has {self._tag_keys}"
                )
            if not isinstance(value, str):
                raise TypeError(
                    f"the tag {key!r} of the metric {self._name!r} is {value!r}, which is no text"
                )


class Counter(Metric):
    """A number that only grows: requests served, bytes read."""

    kind = "counter"

    def inc(self, value: float = 1.0, tags: dict[str, str] | None = None) -> None:
        """Adds `value`, which is above 0."""
        _check_number(self._name, value)
        if value <= 0:
            raise ValueError(f"the counter {self._name!r} cannot grow by {value}\nhint: a Gauge can fall")
        key = self._tags(tags)
        with _registry.lock:
            self._series.values[key] = self._series.values.get(key, 0.0) + value
        _registry.changed()


class Gauge(Metric):
    """A number that rises and falls: the length of a queue, a temperature."""

    kind = "gauge"

    def set(self, value: float | None, tags: dict[str, str] | None = None) -> None:
        """Sets the value; None takes the series away."""
        key = self._tags(tags)
        if value is None:
            with _registry.lock:
                self._series.values.pop(key, None)
        else:
            _check_number(self._name, value)
            with _registry.lock:
                self._series.values[key] = (float(value), time.time())
        _registry.changed()


class Histogram(Metric):
    """How numbers are distributed: how many are at most as large as each of the `boundaries`."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Iterable[float] | None = None,
        tag_keys: Iterable[str] | None = None,
    ) -> None:
        bounds = [float(boundary) for boundary in boundaries or ()]
        if not bounds:
            raise ValueError(f"the histogram {name!r} has no `boundaries`\nhint: boundaries=[1, 10, 100]")
        if bounds[0] <= 0 or sorted(set(bounds)) != bounds:
            raise ValueError(f"the boundaries {bounds} of the histogram {name!r} are not positive and rising")
        self.boundaries = bounds
        super().__init__(name, description, tag_keys)

    def observe(self, value: float, tags: dict[str, str] | None = None) -> None:
        """Counts `value`."""
        _check_number(self._name, value)
        key = self._tags(tags)
        with _registry.lock:
            counts, total = self._series.values.get(key) or ([0] * (len(self.boundaries) + 1), 0.0)
            counts[bisect.bisect_left(self.boundaries, value)] += 1
            self._series.values[key] = (counts, total + value)
        _registry.changed()

    @property
    def info(self) -> dict[str, Any]:
        """`name`, `description`, `tag_keys`, `default_tags` and `boundaries`."""
        return {**super().info, "boundaries": list(self.boundaries)}

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "boundaries": self.boundaries}


# --- reading ----------------------------------------------------------------------------------


def snapshot(cluster: bool = False) -> dict[str, dict[str, Any]]:
    """All metrics of this process, or of all processes of the session, by name.

        {"requests": {"kind": "counter", "description": "", "series": [{"tags": {}, "value": 3.0}]}}

    A series of a histogram has `buckets` (pairs of a boundary and how many values are at most as large),
    `count` and `sum` instead of `value`.
    """
    records = [_registry.record()]
    if cluster:
        flush()
        session = runtime()
        found = (session.key_get(key) for key in session.key_list(_PREFIX))
        records = [_loads(data) for data in found if data is not None]
    merged: dict[str, _Series] = {}
    for record in records:
        for name, series in record.items():
            if name in merged and merged[name].same_shape(series):
                merged[name].add(series)
            else:
                merged[name] = series
    return {name: merged[name].describe() for name in sorted(merged)}


def exposition(cluster: bool = False) -> str:
    """`snapshot` as text in the exposition format of Prometheus."""
    lines: list[str] = []
    for name, metric in snapshot(cluster).items():
        name = _safe(name)
        if metric["description"]:
            lines.append(f"# HELP {name} {_escaped(metric['description'])}")
        lines.append(f"# TYPE {name} {metric['kind']}")
        for series in metric["series"]:
            tags = series["tags"]
            if metric["kind"] != "histogram":
                lines.append(f"{name}{_labels(tags)} {series['value']}")
                continue
            for boundary, count in series["buckets"]:
                lines.append(f"{name}_bucket{_labels({**tags, 'le': str(boundary)})} {count}")
            lines.append(f"{name}_bucket{_labels({**tags, 'le': '+Inf'})} {series['count']}")
            lines.append(f"{name}_sum{_labels(tags)} {series['sum']}")
            lines.append(f"{name}_count{_labels(tags)} {series['count']}")
    return "\n".join(lines) + "\n" if lines else ""


def flush() -> None:
    """Writes this process's numbers into the session now. They are written by themselves soon after each
    change."""
    _registry.publish()


# --- inside -----------------------------------------------------------------------------------


class _Series:
    """All numbers of one metric in one process."""

    def __init__(self, kind: str, description: str, boundaries: list[float], values: dict[Tags, Any]) -> None:
        self.kind = kind
        self.description = description
        self.boundaries = boundaries
        self.values = values

    def same_shape(self, other: "_Series") -> bool:
        return self.kind == other.kind and self.boundaries == other.boundaries

    def add(self, other: "_Series") -> None:
        """Adds the numbers of another process."""
        for tags, value in other.values.items():
            here = self.values.get(tags)
            if here is None:
                self.values[tags] = value
            elif self.kind == "counter":
                self.values[tags] = here + value
            elif self.kind == "gauge":
                self.values[tags] = max(here, value, key=lambda pair: pair[1])
            else:
                counts = [left + right for left, right in zip(here[0], value[0], strict=True)]
                self.values[tags] = (counts, here[1] + value[1])

    def describe(self) -> dict[str, Any]:
        series = []
        for tags, value in sorted(self.values.items()):
            entry: dict[str, Any] = {"tags": dict(tags)}
            if self.kind == "counter":
                entry["value"] = value
            elif self.kind == "gauge":
                entry["value"] = value[0]
            else:
                counts, total = value
                below = [sum(counts[: index + 1]) for index in range(len(self.boundaries))]
                entry["buckets"] = list(zip(self.boundaries, below, strict=True))
                entry["count"], entry["sum"] = sum(counts), total
            series.append(entry)
        return {"kind": self.kind, "description": self.description, "series": series}


class _Registry:
    """The metrics of this process, and the thread that writes them into the session."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._metrics: dict[str, _Series] = {}
        self._dirty = threading.Event()
        self._thread: threading.Thread | None = None
        self._key = b""

    def series(self, metric: Metric) -> _Series:
        """The numbers of a metric: those of an earlier one, if it had the same name."""
        new = _Series(metric.kind, metric._description, list(getattr(metric, "boundaries", ())), {})
        with self.lock:
            known = self._metrics.setdefault(metric._name, new)
        if not known.same_shape(new):
            raise ValueError(
                f"there is another {known.kind} named {metric._name!r} already\nhint: give it another name"
            )
        return known

    def record(self) -> dict[str, _Series]:
        """A copy of all numbers."""
        with self.lock:
            return {
                name: _Series(series.kind, series.description, series.boundaries, _copied(series.values))
                for name, series in self._metrics.items()
            }

    def changed(self) -> None:
        """Called after each change; costs one check while a write is under way."""
        if self._dirty.is_set():
            return
        with self.lock:
            self._dirty.set()
            if self._thread is None:
                # A pid may come again within a session, the time of its start does not.
                self._key = _PREFIX + f"{os.getpid()}-{time.time_ns()}".encode()
                self._thread = threading.Thread(target=self._serve, name="aktis-metrics", daemon=True)
                self._thread.start()
                atexit.register(self._publish_quietly)

    def publish(self) -> None:
        """Writes all numbers into the session of this process, if there is one."""
        import pickle

        from aktis import _engine

        self._dirty.clear()
        session = _engine.current()
        if not self._key or session is None or session.is_closed():
            return
        record = [(name, vars(series)) for name, series in self.record().items()]
        session.key_put(self._key, pickle.dumps(record), True)

    def _serve(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(_PAUSE_S)
            self._publish_quietly()

    def _publish_quietly(self) -> None:
        try:
            self.publish()
        except Exception:
            pass  # The session is ending. The next change tries again.


def _loads(data: bytes) -> dict[str, _Series]:
    import pickle

    return {name: _Series(**fields) for name, fields in pickle.loads(data)}


def _copied(values: dict[Tags, Any]) -> dict[Tags, Any]:
    return {
        tags: (list(value[0]), value[1]) if isinstance(value, tuple) and isinstance(value[0], list) else value
        for tags, value in values.items()
    }


def _revive(kind: type[Metric], arguments: dict[str, Any], default_tags: dict[str, str]) -> Metric:
    return kind(**arguments).set_default_tags(default_tags)


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"the metric {name!r} got {value!r}, which is no number")


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_:" else "_" for letter in name)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _labels(tags: dict[str, str]) -> str:
    if not tags:
        return ""
    return "{" + ",".join(f'{_safe(key)}="{_escaped(value)}"' for key, value in tags.items()) + "}"


_registry = _Registry()
