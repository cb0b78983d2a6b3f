"""The jobs of a cluster: the programs that use it, or have used it.

A driver writes down its own in the key-value space when it attaches, and that it has ended. Of one that could
not say so, its node knows that it is gone.
"""

import os
import time
from typing import Any

from aktis._keys import OwnNamespace

KEYS = OwnNamespace("aktis.jobs")
# More are kept only of those that run.
JOBS_MAX = 1000


def begin(job_id: str, node_id: str) -> None:
    """The current session has attached to a node of a cluster."""
    import json

    from aktis.exceptions import LimitExceededError
    from aktis.util import debug

    note = {"pid": os.getpid(), "node": node_id, "began": time.time(), "ended": False}
    try:
        _forget_oldest()
        debug.kv_put(job_id, json.dumps(note), namespace=KEYS)
    except LimitExceededError as error:
        # A program that cannot attach cannot make room either.
        import warnings

        warnings.warn(f"this job is not listed: {error}", stacklevel=2)


def end(job_id: str) -> None:
    """The current session leaves."""
    import json

    from aktis.util import debug

    known = debug.kv_get(job_id, namespace=KEYS)
    if known is not None:
        debug.kv_put(job_id, json.dumps({**json.loads(known), "ended": True}), namespace=KEYS)


def rows() -> list[dict[str, Any]]:
    """The jobs of the cluster that the current session is in, the oldest first: `JobID`, `IsDead`,
    `DriverPid`. A session with a node of its own has one."""
    from aktis import _nodes, _session

    nodes = _nodes.cluster_rows()
    if nodes is None:
        return [{"JobID": _session.job_id().hex(), "IsDead": False, "DriverPid": _own_driver()}]
    drivers = {(row["node_id"].hex(), pid) for row in nodes for pid in row["drivers"]}
    return [
        {
            "JobID": job,
            "IsDead": note["ended"] or (note["node"], note["pid"]) not in drivers,
            "DriverPid": note["pid"],
        }
        for job, note in _notes()
    ]


def _own_driver() -> int:
    from aktis import _runtime_env
    from aktis._engine import context

    # Told to all workers of the job.
    return int(_runtime_env.job().get("driver_pid", 0)) if context().is_worker else os.getpid()


def _notes() -> list[tuple[str, dict[str, Any]]]:
    """What drivers have written down, the oldest first."""
    import json

    from aktis.util import debug

    found = []
    for key in debug.kv_list(namespace=KEYS):
        content = debug.kv_get(key, namespace=KEYS)
        if content is not None:
            found.append((key.decode(), json.loads(content)))
    return sorted(found, key=lambda job: job[1]["began"])


def _forget_oldest() -> None:
    from aktis.util import debug

    if len(debug.kv_list(namespace=KEYS)) < JOBS_MAX:
        return
    ended = [job["JobID"] for job in rows() if job["IsDead"]]
    for job in ended[: JOBS_MAX // 2]:
        debug.kv_del(job, namespace=KEYS)
