"""For finding leaks and hangs: who holds which object, what the store holds, what the control store knows.

    >>> from aktis.util import debug
    >>> print(debug.memory_summary())
    >>> debug.store_stats()["used_bytes"]

Most of it asks the node; `reference_counts` is about this process alone.
"""

from typing import Any

from aktis._keys import full_key
from aktis.util._runtime import runtime, state, text_of

__all__ = [
    "available_resources_per_node",
    "disable_log_once_globally",
    "enable_periodic_logging",
    "jobs",
    "kill_node",
    "kv_del",
    "kv_exists",
    "kv_get",
    "kv_list",
    "kv_put",
    "log_once",
    "memory_summary",
    "object_exists",
    "reference_counts",
    "store_stats",
]

_STORE_STATS = (
    "used_bytes",
    "capacity_bytes",
    "used_objects",
    "all_objects",
    "spilled_bytes",
    "spilled_objects",
    "restored_bytes",
    "restored_objects",
)


def reference_counts() -> dict[str, dict[str, int]]:
    """What this process refers to: object id -> `{"local": n, "submitted": n}`.

    `local` counts references in this process, `submitted` those that travel with tasks which are not
    finished.
    """
    from aktis import _engine

    return {} if _engine.current() is None else _engine.native.reference_counts()


def object_exists(ref: Any) -> bool:
    """Whether the object is in this node's shared store. Small values are not: they travel inline."""
    identity = text_of(ref)
    rows = runtime().state("objects")
    return any(row["stored"] for row in rows if text_of(row["id"]) == identity)


def memory_summary() -> str:
    """Who holds what, and why, as text for people."""
    from aktis.util.state import list_objects

    rows = sorted(list_objects(limit=2**62), key=lambda row: row.object_size, reverse=True)
    counts = reference_counts()
    known = {row.object_id for row in rows}
    lines = [f"{'object':<40}  {'bytes':>14}  {'state':<10}  {'local':>5}  {'submitted':>9}  held by"]
    for row in rows:
        lines.append(_object_line(row.object_id, row.object_size, row.state, counts, row.holders))
    for identity in sorted(counts.keys() - known):
        lines.append(_object_line(identity, None, "inline", counts, []))
    stats = store_stats()
    lines.append("")
    lines.append(f"{len(rows)} objects known to the node, {len(counts)} referred to by this process")
    lines.append(
        f"store: {stats['used_bytes']} of {stats['capacity_bytes']} bytes used, "
        f"{stats['spilled_bytes']} bytes spilled, {stats['restored_bytes']} bytes restored"
    )
    return "\n".join(lines)


def store_stats() -> dict[str, int]:
    """The object store in numbers: `used_bytes`, `capacity_bytes`, `spilled_bytes`, `restored_bytes`, and
    the objects likewise, added up over all nodes. `all_objects` counts those on disk, too."""
    total = dict.fromkeys(_STORE_STATS, 0)
    for row in state("store"):
        for name, value in row.items():
            if isinstance(value, int) and not isinstance(value, bool):
                total[name] = total.get(name, 0) + value
    return total


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """What is free on each node: node id -> resource -> amount."""
    from aktis.util.state import list_nodes

    nodes = [node for node in list_nodes(limit=2**62) if node.state == "ALIVE"]
    rooms: dict[str, float] = {}
    for row in state("store"):
        name = text_of(row["node"]) if "node" in row else nodes[0].node_id
        rooms[name] = float(max(row["capacity_bytes"] - row["used_bytes"], 0))
    return {
        node.node_id: {
            **(node.resources_available or runtime().available_resources()),
            "object_store_memory": rooms.get(node.node_id, 0.0),
        }
        for node in nodes
    }


def jobs() -> list[dict[str, Any]]:
    """The Python programs that use the cluster, or have used it, the oldest first: `JobID`, `IsDead`,
    `DriverPid` of each. A session with a node of its own has one."""
    from aktis import _jobs

    return _jobs.rows()


def kill_node(node_id: Any, graceful: bool = False) -> None:
    """Ends a node that a `Cluster` of this process has added, for tests of faults."""
    import aktis
    from aktis import cluster_utils

    wanted = text_of(node_id)
    alive = {node["NodeID"] for node in aktis.nodes() if node["Alive"]}
    if wanted not in alive:
        raise ValueError(f"there is no node {wanted}\nhint: `aktis.nodes()` lists them")
    if not cluster_utils.remove_node(wanted, graceful):
        raise ValueError(
            f"node {wanted} was not started by this process\n"
            "hint: `kill_node` is for nodes of an `aktis.cluster_utils.Cluster`; on its own machine, "
            "`aktis stop` ends a node"
        )


# --- the key-value space ----------------------------------------------------------------------


def kv_put(
    key: str | bytes, value: str | bytes, overwrite: bool = True, namespace: str | bytes | None = None
) -> bool:
    """Stores a small value for all processes of the session. True if the key was new.

    An existing value is kept if `overwrite` is not set.
    """
    return runtime().key_put(_key(key, namespace), _bytes("value", value), overwrite)


def kv_get(key: str | bytes, namespace: str | bytes | None = None) -> bytes | None:
    """The value of a key, or None."""
    return runtime().key_get(_key(key, namespace))


def kv_del(key: str | bytes, del_by_prefix: bool = False, namespace: str | bytes | None = None) -> int:
    """Deletes a key, or all keys that begin with it. How many there were."""
    session = runtime()
    full = _key(key, namespace)
    keys = session.key_list(full) if del_by_prefix else [full]
    return sum(session.key_delete(found) for found in keys)


def kv_exists(key: str | bytes, namespace: str | bytes | None = None) -> bool:
    """Whether the key has a value."""
    return runtime().key_get(_key(key, namespace)) is not None


def kv_list(prefix: str | bytes = b"", namespace: str | bytes | None = None) -> list[bytes]:
    """The keys that begin with `prefix`, sorted."""
    strip = len(_key(b"", namespace))
    return sorted(key[strip:] for key in runtime().key_list(_key(prefix, namespace)))


def _key(key: str | bytes, namespace: str | bytes | None) -> bytes:
    """Keys of namespaces, and those of the user in general, never meet keys that the library itself uses."""
    if namespace is not None:
        _bytes("namespace", namespace)  # a text, or bytes
    return full_key(_bytes("key", key), namespace)


def _bytes(what: str, value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"`{what}` is {value!r}, neither bytes nor text")


# --- logging ----------------------------------------------------------------------------------

_logged: set[Any] = set()
_log_once_enabled = True
_periodic = False


def log_once(key: Any) -> bool:
    """True the first time it is called with `key`: `if log_once("slow-path"): logger.warning(..)`."""
    import time

    if not _log_once_enabled:
        return False
    # With periodic logging, each minute counts as another first time.
    mark = (key, time.monotonic() // 60) if _periodic else key
    if mark in _logged:
        return False
    _logged.add(mark)
    return True


def disable_log_once_globally() -> None:
    """Makes `log_once` always false in this process."""
    global _log_once_enabled
    _log_once_enabled = False


def enable_periodic_logging() -> None:
    """Makes `log_once` true once a minute for each key in this process."""
    global _periodic
    _periodic = True


def _object_line(
    identity: str, size: int | None, state: str, counts: dict[str, dict[str, int]], holders: list[Any]
) -> str:
    count = counts.get(identity, {})
    local, submitted = count.get("local", 0), count.get("submitted", 0)
    reasons = [str(holder) for holder in holders]
    if local and not reasons:
        reasons.append("this process")
    shown = "?" if size is None else str(size)
    who = ", ".join(reasons) or "?"
    return f"{identity:<40}  {shown:>14}  {state.lower():<10}  {local:>5}  {submitted:>9}  {who}"
