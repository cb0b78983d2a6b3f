"""Functions that list, find and count what there is in a session."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from aktis.util._runtime import state, text_of
from aktis.util.state._query import DEFAULT_LIMIT, Filter, select
from aktis.util.state._rows import (
    ActorState,
    DriverInfo,
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


class _Function:
    """Something that is called and pickled like a function of this module."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __reduce__(self) -> str:
        return self.__name__


class _Lister(_Function, Generic[R]):
    """Lists rows of one kind. `address`, `timeout` and the last three parameters exist for other programs'
    sake: rows are always complete, and they are those of this session."""

    def __init__(self, name: str, kind: type[R], rows: Callable[[], Iterable[R]], description: str) -> None:
        super().__init__(name)
        self.kind = kind
        self._rows = rows
        self.__doc__ = description

    def __call__(
        self,
        address: str | None = None,
        filters: Iterable[Filter] | None = None,
        limit: int = DEFAULT_LIMIT,
        timeout: float = 30,
        detail: bool = False,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> list[R]:
        return select(self.kind, self._rows(), filters, limit)


class _Finder(_Function, Generic[R]):
    """Finds the row with an id. `address`, `timeout` and `_explain` exist for other programs' sake."""

    def __init__(self, name: str, lister: _Lister[R]) -> None:
        super().__init__(name)
        self._lister = lister
        self.__doc__ = "The one with this id; None if it is not known."

    def __call__(
        self, id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
    ) -> R | None:
        return next(iter(self._lister(filters=[(self._lister.kind._key, "=", text_of(id))], limit=1)), None)


def _rows(kind: type[R], what: str) -> Callable[[], list[R]]:
    """Reads all rows about something from the engine."""

    def rows() -> list[R]:
        try:
            found = state(what)
        except RuntimeError as error:
            raise AktisStateApiException(f"the {what} of this session cannot be listed: {error}") from error
        return [kind.from_engine(row) for row in found]

    return rows


def _jobs() -> list[JobState]:
    from aktis.util import debug

    return [
        JobState(
            job_id=job["JobID"],
            status="SUCCEEDED" if job["IsDead"] else "RUNNING",
            driver_pid=job["DriverPid"],
            driver_info=DriverInfo(job["DriverPid"]),
        )
        for job in debug.jobs()
    ]


_waiting_tasks = _rows(TaskState, "tasks")


def _tasks() -> list[TaskState]:
    from aktis.util.state._tasks import merged

    return merged(_waiting_tasks())


_actors_of_engine = _rows(ActorState, "actors")
_workers_of_engine = _rows(WorkerState, "workers")
_groups_of_engine = _rows(PlacementGroupState, "groups")
_objects_of_engine = _rows(ObjectState, "objects")


def _actors() -> list[ActorState]:
    from aktis import _errors, _session

    rows = _actors_of_engine()
    # Which of several jobs created an actor is not on record.
    job = None if _session.is_attached() else _session.job_id().hex()
    for row in rows:
        row.job_id = row.job_id or job
        if row.death_cause is not None:
            row.death_cause = _errors.death_cause(row.death_cause)
    return rows


def _workers() -> list[WorkerState]:
    """The processes that run tasks and actors, then the drivers."""
    from aktis.util import debug

    drivers = [
        WorkerState(pid=job["DriverPid"], worker_type="DRIVER", job_id=job["JobID"])
        for job in debug.jobs()
        if not job["IsDead"]
    ]
    return _workers_of_engine() + drivers


def _groups() -> list[PlacementGroupState]:
    """The placement groups that the node knows, then those that were removed."""
    from aktis.util.placement_group import removed_groups

    rows = _groups_of_engine()
    known = {row.placement_group_id for row in rows}
    for identity, table in removed_groups().items():
        if identity not in known:
            bundles = [table["bundles"][index] for index in sorted(table["bundles"])]
            rows.append(
                PlacementGroupState(
                    placement_group_id=identity,
                    name=table["name"],
                    state="REMOVED",
                    strategy=table["strategy"],
                    bundles=bundles,
                )
            )
    if os.environ.get("AKTIS_COMPAT") == "1":
        for row in rows:
            row.bundles = _bundles_of_ray(row)
    return rows


def _bundles_of_ray(row: PlacementGroupState) -> list[dict[str, Any]]:
    """The bundles of a group, each with its place, as Ray's programs read them."""
    nodes = row.nodes or [None] * len(row.bundles)
    return [
        {
            "bundle_id": {"placement_group_id": row.placement_group_id, "bundle_index": index},
            "unit_resources": resources,
            "node_id": node or "",
        }
        for index, (resources, node) in enumerate(zip(row.bundles, nodes, strict=True))
    ]


def _objects() -> list[ObjectState]:
    from aktis._engine import context
    from aktis.util import debug

    rows = _objects_of_engine()
    held_here = debug.reference_counts()
    for row in rows:
        if row.object_id in held_here:
            row.pid, row.reference_type = os.getpid(), "LOCAL_REFERENCE"
            row.type = "WORKER" if context().is_worker else "DRIVER"
    return rows


list_tasks = _Lister(
    "list_tasks",
    TaskState,
    _tasks,
    """Tasks, calls of actors and constructors: those that wait or run, and those that are over, as far as the
    workers of the node have them on record (the last 2048 of each).

    `filters` are triples such as `("state", "=", "RUNNING")`, with the predicates `= != < <= > >=`; text is
    compared without regard to case.
    """,
)
list_actors = _Lister(
    "list_actors",
    ActorState,
    _actors,
    """Actors, such as those with `filters=[("class_name", "=", "Counter"), ("state", "=", "ALIVE")]`.""",
)
list_objects = _Lister(
    "list_objects",
    ObjectState,
    _objects,
    "Objects that the node knows: large ones, and those that several processes hold.",
)
list_nodes = _Lister("list_nodes", NodeState, _rows(NodeState, "nodes"), "Nodes.")
list_workers = _Lister(
    "list_workers", WorkerState, _workers, "Processes that run tasks and actors, and drivers."
)
list_placement_groups = _Lister(
    "list_placement_groups", PlacementGroupState, _groups, "Placement groups, also removed ones."
)
list_jobs = _Lister("list_jobs", JobState, _jobs, "Programs that use the session.")

get_actor = _Finder("get_actor", list_actors)
get_node = _Finder("get_node", list_nodes)
get_worker = _Finder("get_worker", list_workers)
get_placement_group = _Finder("get_placement_group", list_placement_groups)
get_job = _Finder("get_job", list_jobs)
_find_task = _Finder("_find_task", list_tasks)


def get_task(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> TaskState | None:
    """The task with this id (hexadecimal text, a TaskID, or a reference to its result); None if it is not
    known."""
    task_id = getattr(id, "task_id", None)
    return _find_task(task_id() if callable(task_id) else id)


def get_objects(
    id: Any, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> list[ObjectState]:
    """What is known about the object with this id, or about a reference's object."""
    return list_objects(filters=[("object_id", "=", text_of(id))])


def summarize_tasks(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many tasks there are in which state, by name: that of `options(name=...)`, else the function.

        summarize_tasks()["cluster"]["summary"]["square"]["state_counts"]  # {"FINISHED": 10, "RUNNING": 2}

    Finished tasks count as long as they are on record.
    """
    rows = _tasks()
    kinds = Counter(row.type for row in rows)
    summary = _counts(rows, "name", "func_or_class_name")
    for row in rows:
        summary[row.name]["type"] = row.type
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
    rows = _actors()
    summary = _counts(rows, "class_name", "class_name")
    return {"cluster": {"summary": summary, "total_actors": len(rows), "summary_by": "class"}}


def summarize_objects(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """How many objects of which size there are, by where they came from."""
    rows = _objects()
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


def _counts(rows: Iterable[Row], column: str, label: str) -> dict[str, dict[str, Any]]:
    summary: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row[column]
        entry = summary.setdefault(name, {label: name, "state_counts": {}})
        entry["state_counts"][row["state"]] = entry["state_counts"].get(row["state"], 0) + 1
    return summary
