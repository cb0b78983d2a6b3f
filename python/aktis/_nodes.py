"""The nodes of the session: what they are, what they have, and what ran on them."""

import os
from typing import Any

from aktis import _runtime_env, _session
from aktis._engine import context


def cluster_resources() -> dict[str, float]:
    """What all nodes have, by the name of the resource."""
    found = _session.ensure()
    return _session.with_store(found.resources(), _session.of(found))


def available_resources() -> dict[str, float]:
    """What of it is free now. What nothing is left of is left out."""
    found = _session.ensure()
    free = {name: value for name, value in found.available_resources().items() if value}
    return _session.with_store(free, _session.of(found))


def nodes() -> list[dict[str, Any]]:
    """The nodes of the session, dead ones included."""
    _session.ensure()
    here = context()
    name = os.uname().nodename
    return [
        {
            "NodeID": here.node_id.hex(),
            "Alive": True,
            "alive": True,
            "NodeManagerAddress": "127.0.0.1",
            "NodeManagerHostname": name,
            "NodeManagerPort": 0,
            "ObjectManagerPort": 0,
            "ObjectStoreSocketName": "",
            "RayletSocketName": "",
            "MetricsExportPort": 0,
            "NodeName": name,
            "Resources": cluster_resources(),
            "Labels": _session.labels(),
        }
    ]


def timeline(filename: str | None = None) -> list[dict[str, Any]] | None:
    """What ran when, for the viewer of traces in Chrome (or ui.perfetto.dev): into a file, or as a list.

    The last 2048 tasks and calls of each worker are kept."""
    events = [_event(*row) for row in _session.ensure().timeline()]
    if filename is None:
        return events
    import json

    with open(filename, "w", encoding="utf-8") as file:
        json.dump(events, file)
    return None


def _event(kind: str, name: str, task: str, pid: int, begin: float, duration: float) -> dict[str, Any]:
    """A complete event, as the format has it: times are microseconds."""
    return {
        "cat": kind,
        "name": name,
        "ph": "X",
        "pid": "127.0.0.1",
        "tid": f"worker:{pid}",
        "ts": begin * 1e6,
        "dur": duration * 1e6,
        "args": {"task_id": task, "func_or_class_name": name},
    }


def get_gpu_ids() -> list[int] | list[str]:
    """The GPUs that the running task or actor may use, as CUDA_VISIBLE_DEVICES names them."""
    if not _session.is_initialized():
        return []
    here = context()
    chosen = _runtime_env.job().get("gpus")
    if not chosen:
        return list(here.gpus)
    names = [str(chosen[index]) for index in here.gpus]
    return [int(name) for name in names] if all(name.isdigit() for name in names) else names
