"""Functions that list, find and count what there is in a session."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

from aktis.util._runtime import runtime, text_of
from aktis.util.state._query import DEFAULT_LIMIT, Filter, select
from aktis.util.state._rows import (
    ActorState,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    Row,
    TaskState,
    WorkerState,
)
from aktis.util.state.exception import AktisStateApiException

R = TypeVar("R", bound=Row)

# What exists in all is read from one place, so a limit must not cut it.
_ALL = 2**62


def list_tasks(
    address: str | None = None,
    filters: Iterable[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[TaskState]:
    """Tasks and calls of actors: those that wait or run, and finished ones as long as they are on record.

    `filters` are triples such as `("state", "=", "RUNNING")`, with the predicates `= != < <= > >=`; text is
    compared without regard to case. The other parameters exist for other programs' sake: rows are always
    complete, and they are those of this session.
    """
    return _list(TaskState, "tasks", filters, limit)


def list_actors(
    address: str | None = None,
    filters: Iterable[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ActorState]:
    """Actors, such as those with `filters=[("class_name", "=", "Counter"), ("state", "=", "ALIVE")]`."""
    return _list(ActorState, "actors", filters, limit)


def list_objects(
    address: str | None = None,
    filters: Iterable[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ObjectState]:
    """Objects that the node knows: large ones, and those that several processes hold. See `list_tasks`."""
    return _list(ObjectState, "objects", filters, limit)


def list_nodes(
    address: str | None = None,
    filters: Iterable[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[NodeState]:
    """Nodes. See `list_tasks` for the parameters."""
    return _list(NodeState, "nodes", filters, limit)


def list_workers(
    address: str | None = None,
    filters: Iterable[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[WorkerState]:
    """Processes that run tasks and actors. See `list_tasks` for the parameters."""
    return _list(WorkerState, "workers", filters, limit)


def list_placement_groups(
    address: str | None = None,
    filters: Iterable[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[PlacementGroupState]:
    """Placement groups. See `list_tasks` for the parameters."""
    return _list(PlacementGroupState, "groups", filters, limit)


def list_jobs(
    address: str | None = None,
    filters: Iterable[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[JobState]:
    """Programs that use the session. See `list_tasks` for the parameters."""
    from aktis.util import debug

    rows = [
        JobState(
            job_id=job["JobID"],
            status="SUCCEEDED" if job["IsDead"] else "RUNNING",
            driver_pid=job["DriverPid"],
        )
        for job in debug.jobs()
    ]
    return select(JobState, rows, filters, limit)


def get_task(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> TaskState | None:
    """The task with this id (hexadecimal text, a TaskID, or a reference to its result); None if it is not
    known."""
    task_id = getattr(id, "task_id", None)
    return _find(TaskState, "tasks", task_id() if callable(task_id) else id)


def get_actor(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> ActorState | None:
    """The actor with this id; None if it is not known."""
    return _find(ActorState, "actors", id)


def get_objects(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> list[ObjectState]:
    """What is known about the object with this id, or about a reference's object."""
    return _list(ObjectState, "objects", [("object_id", "=", text_of(id))], _ALL)


def get_node(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> NodeState | None:
    """The node with this id; None if it is not known."""
    return _find(NodeState, "nodes", id)


def get_worker(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> WorkerState | None:
    """The worker with this id; None if it is not known."""
    return _find(WorkerState, "workers", id)


def get_placement_group(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> PlacementGroupState | None:
    """The placement group with this id; None if it is not known."""
    return _find(PlacementGroupState, "groups", id)


def get_job(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> JobState | None:
    """The job with this id; None if it is not known."""
    return next(iter(list_jobs(filters=[("job_id", "=", text_of(id))])), None)


def summarize_tasks(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many tasks there are in which state, by function.

        summarize_tasks()["cluster"]["summary"]["square"]["state_counts"]  # {"FINISHED": 10, "RUNNING": 2}

    Finished tasks count as long as they are on record.
    """
    rows = _list(TaskState, "tasks", None, _ALL)
    kinds = Counter(row.type for row in rows)
    summary = _counts(rows, "func_or_class_name", "func_or_class_name")
    for row in rows:
        summary[row.func_or_class_name]["type"] = row.type
    return {
        "cluster": {
            "summary": summary,
            "total_tasks": kinds["NORMAL_TASK"],
            "total_actor_tasks": kinds["ACTOR_TASK"],
            "total_actor_scheduled": kinds["ACTOR_CREATION_TASK"],
            "summary_by": "func_name",
        }
    }


def summarize_actors(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many actors there are in which state, by class."""
    rows = _list(ActorState, "actors", None, _ALL)
    summary = _counts(rows, "class_name", "class_name")
    return {"cluster": {"summary": summary, "total_actors": len(rows), "summary_by": "class"}}


def summarize_objects(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many objects of which size there are, by where they came from."""
    rows = _list(ObjectState, "objects", None, _ALL)
    summary: dict[str, Any] = {}
    for row in rows:
        entry = summary.setdefault(
            row.call_site or "unknown", {"total_objects": 0, "total_size_mb": 0.0, "state_counts": {}}
        )
        entry["total_objects"] += 1
        entry["total_size_mb"] += row.object_size / 2**20
        entry["state_counts"][row.state] = entry["state_counts"].get(row.state, 0) + 1
    return {
        "cluster": {
            "summary": summary,
            "total_objects": len(rows),
            "total_size_mb": sum(row.object_size for row in rows) / 2**20,
            "summary_by": "callsite",
        }
    }


def _list(kind: type[R], what: str, filters: Iterable[Filter] | None, limit: int) -> list[R]:
    try:
        rows = runtime().state(what)
    except RuntimeError as error:
        raise AktisStateApiException(f"the {what} of this session cannot be listed: {error}") from error
    return select(kind, (kind.from_engine(row) for row in rows), filters, limit)


def _find(kind: type[R], what: str, identity: Any) -> R | None:
    return next(iter(_list(kind, what, [(kind._key, "=", text_of(identity))], 1)), None)


def _counts(rows: Iterable[Row], column: str, label: str) -> dict[str, dict[str, Any]]:
    summary: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row[column]
        entry = summary.setdefault(name, {label: name, "state_counts": {}})
        entry["state_counts"][row["state"]] = entry["state_counts"].get(row["state"], 0) + 1
    return summary
