"""Tasks, one row each: what waits here, and what the workers of the node have run of late.

Workers write what they run into shared memory, when it begins and when it ends. The parent of a task follows
from the ids of both. Why a task failed is known to the processes that asked for its value.
"""

import os
from collections.abc import Iterable
from typing import Any

from aktis import _remote_function
from aktis.util._runtime import runtime, state
from aktis.util.state._rows import TaskState

_STATES = {"PENDING_ARGS": "PENDING_ARGS_AVAIL", "PENDING": "PENDING_NODE_ASSIGNMENT"}
"""States of tasks that wait, as the engine and as Ray's programs call them."""
_IS_COMPAT = os.environ.get("AKTIS_COMPAT") == "1"
_TYPES = {"task": "NORMAL_TASK", "actor_creation": "ACTOR_CREATION_TASK", "actor_task": "ACTOR_TASK"}


def merged(waiting: list[TaskState]) -> list[TaskState]:
    """The rows of tasks that wait or run, with those that are over, the oldest first."""
    from aktis import _errors, _session
    from aktis._engine import context, native

    job, node = _session.job_id().hex(), context().node_id.hex()
    rows: dict[str, TaskState] = {}
    for run in sorted(runtime().timeline(), key=lambda run: run[4]):
        # Of a task that was tried several times, the last counts.
        before = rows.pop(run[2], None)
        rows[run[2]] = _ran(job, node, run, 0 if before is None else before.attempt_number + 1)
    for row in waiting:
        row.state = _STATES.get(row.state, row.state)
        known = rows.get(row.task_id)
        if known is None or (known.state != "RUNNING" and row.state not in ("FINISHED", "FAILED", "RUNNING")):
            row.job_id = row.job_id or job
            rows[row.task_id] = row
        elif known.actor_id is None:
            known.actor_id = row.actor_id
    for task, (kind, message, function) in _errors.failures().items():
        found = rows.get(task)
        if found is None:
            found = rows[task] = TaskState(
                task_id=task, name=function, func_or_class_name=function, job_id=job
            )
            if kind.startswith("ACTOR"):
                found.type = "ACTOR_TASK"
        elif kind == "TASK_CANCELLED" and found.worker_pid is not None and _IS_COMPAT:
            # Ray takes a task that was cancelled while it ran for one that is over.
            found.state, found.error_type = "FINISHED", None
            continue
        found.state, found.error_type, found.error_message = "FAILED", kind, message
    _add_actors(rows.values())
    _add_submissions(rows.values())
    parents = native.parents([bytes.fromhex(task) for task in rows])
    for task, row in rows.items():
        row.parent_task_id = parents.get(task, row.parent_task_id)
    return list(rows.values())


def _add_actors(rows: Iterable[TaskState]) -> None:
    """Calls and constructors that are over tell their process, and that tells the actor while it lives."""
    lacking = [row for row in rows if row.actor_id is None and row.type != "NORMAL_TASK"]
    if not lacking:
        return
    living = {row.get("pid"): row["id"].hex() for row in state("actors") if row.get("pid")}
    for row in lacking:
        row.actor_id = living.get(row.worker_pid)


def _add_submissions(rows: Iterable[TaskState]) -> None:
    """The function and needs of tasks that this process submitted under their names."""
    for row in rows:
        known = _remote_function.submissions.get(row.name) if row.type == "NORMAL_TASK" else None
        if known is not None:
            row.func_or_class_name, row.required_resources = known[0], dict(known[1])


def _ran(job: str, node: str, run: tuple[Any, ...], attempt: int) -> TaskState:
    kind, name, task, pid, begin, duration, failed = run
    row = TaskState(
        task_id=task,
        name=name,
        func_or_class_name=name,
        type=_TYPES[kind],
        attempt_number=attempt,
        job_id=job,
        node_id=node,
        worker_pid=pid,
        start_time_ms=int(begin * 1000),
    )
    if duration >= 0:
        row.end_time_ms = int((begin + duration) * 1000)
        row.state = "FAILED" if failed else "FINISHED"
        row.error_type = "TASK_EXECUTION_EXCEPTION" if failed else None
    elif os.path.exists(f"/proc/{pid}"):
        row.state = "RUNNING"
    else:
        row.state, row.error_type = "FAILED", "WORKER_DIED"
    return row
