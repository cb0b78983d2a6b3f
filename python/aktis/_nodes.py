"""The nodes of the session: what they are, what they have, and what ran on them."""

import os
from collections.abc import Mapping
from typing import Any

from aktis import _runtime_env, _session
from aktis._engine import Runtime, context, native


def cluster_resources() -> dict[str, float]:
    """What all nodes have, by the name of the resource."""
    found = _session.ensure()
    rows = cluster_rows()
    if rows is not None:
        return _sum(rows, "total")
    return {**found.state("nodes")[0]["resources"], "object_store_memory": float(_store(found)[0])}


def _store(found: Runtime) -> tuple[int, int]:
    """The size of this node's object store, and what of it is free."""
    row = found.state("store")[0]
    capacity = int(row["capacity_bytes"])
    return capacity, max(capacity - int(row["used_bytes"]), 0)


def available_resources() -> dict[str, float]:
    """What of it is free now. What nothing is left of is left out."""
    found = _session.ensure()
    rows = cluster_rows()
    if rows is not None:
        free = {name: value for name, value in _sum(rows, "available").items() if value}
        stores = found.state("store", daemon_directory())
        room = sum(max(int(row["capacity_bytes"]) - int(row["used_bytes"]), 0) for row in stores)
        return {**free, **_bundles(found), "object_store_memory": float(room)}
    free = {name: value for name, value in found.available_resources().items() if value}
    return {**free, **_bundles(found), "object_store_memory": float(_store(found)[1])}


def _bundles(found: Runtime) -> dict[str, float]:
    """Placement groups as Ray shows them: a thousand of a resource for each bundle."""
    return {
        f"bundle_group_{row['id'].hex()}": 1000.0 * len(row["bundles"])
        for row in found.state("groups")
        if str(row["state"]).upper() == "CREATED"
    }


def nodes() -> list[dict[str, Any]]:
    """The nodes of the session, dead ones included."""
    _session.ensure()
    rows = cluster_rows(with_dead=True)
    if rows is not None:
        return [_node_of(row) for row in rows]
    name = os.uname().nodename
    return [_node(context().node_id.hex(), True, "127.0.0.1", 0, name, cluster_resources(), labels())]


def labels() -> dict[str, str]:
    """The labels of this node."""
    rows = cluster_rows()
    if rows is None:
        return {**_session.labels(), "ray.io/node-id": context().node_id.hex()}
    here = context().node_id
    return next((dict(row["labels"]) for row in rows if row["node_id"] == here), {})


def cluster_rows(with_dead: bool = False) -> list[dict[str, Any]] | None:
    """The nodes of the cluster that the current session is in; None if its node is embedded in the driver."""
    directory = daemon_directory()
    return None if directory is None else native.cluster_nodes(directory, with_dead)


def daemon_directory() -> str | None:
    """Where the daemon of this process's node is asked; None if the node is embedded in the driver."""
    node = _node_directory()
    # Its own directory is around that where drivers attach.
    return os.path.dirname(node) or None if node else None


def _node_directory() -> str | None:
    found = _session.ensure()
    if not _session.is_attached():
        return None
    if _session.of(found) is not None:
        return found.directory()
    return os.environ.get("AKTIS_NODE_DIRECTORY")


def head_address(node_directory: str | None = None) -> str | None:
    """Where the head of the cluster listens; None if the node is in no cluster."""
    directory = node_directory or _node_directory()
    if directory is None:
        return None
    try:
        with open(os.path.join(directory, "address"), encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return None


def own_address(head: str | None) -> str:
    """The address of this machine, as the machine of the head sees it."""
    if head is None:
        return "127.0.0.1"
    import socket

    host, _, port = head.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # Nothing is sent: it is only found out which way it would go.
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _sum(rows: list[dict[str, Any]], which: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in rows:
        amounts = {**row[which], "object_store_memory": float(row["store_bytes"])} if row["is_alive"] else {}
        for name, amount in amounts.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _node_of(row: Mapping[str, Any]) -> dict[str, Any]:
    host, _, port = row["address"].rpartition(":")
    name = row["host"] or host
    return _node(
        row["node_id"].hex(), row["is_alive"], host, int(port or 0), name, row["total"], row["labels"]
    )


def _node(
    node_id: str,
    alive: bool,
    address: str,
    port: int,
    name: str,
    resources: dict[str, float],
    labels: dict[str, str],
) -> dict[str, Any]:
    return {
        "NodeID": node_id,
        "Alive": alive,
        "alive": alive,
        "NodeManagerAddress": address,
        "NodeManagerHostname": name,
        "NodeManagerPort": port,
        "ObjectManagerPort": 0,
        "ObjectStoreSocketName": "",
        "RayletSocketName": "",
        "MetricsExportPort": 0,
        "NodeName": name,
        "Resources": resources if alive else {},
        "Labels": labels,
    }


def timeline(filename: str | None = None) -> list[dict[str, Any]] | None:
    """What ran when, for the viewer of traces in Chrome (or ui.perfetto.dev): into a file, or as a list.

    It has the tasks and calls that ran on this node: the last 2048 of each worker."""
    rows = _session.ensure().timeline()
    place = own_address(head_address())
    events = [_event(place, *row[:6]) for row in rows if row[5] >= 0]
    if filename is None:
        return events
    import json

    with open(filename, "w", encoding="utf-8") as file:
        json.dump(events, file)
    return None


def _event(
    place: str, kind: str, name: str, task: str, pid: int, begin: float, duration: float
) -> dict[str, Any]:
    """A complete event, as the format has it: times are microseconds."""
    return {
        "cat": kind,
        "name": name,
        "ph": "X",
        "pid": place,
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
