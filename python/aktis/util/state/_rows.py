"""The rows that `aktis.util.state` lists: dataclasses that can be read like dicts, too.

Each knows how to build itself from a row of the engine, whose names are shorter (`_from_engine` says which
is which).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self


class Row(Mapping[str, Any]):
    """`row.state` and `row["state"]` are the same; `dict(row)` and `row.asdict()` too."""

    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Field -> what the engine may call it, if not by the field's own name."""
    _key: ClassVar[str] = ""
    """The field with the id."""

    @classmethod
    def columns(cls) -> list[str]:
        """The names of the fields."""
        return [column.name for column in fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def from_engine(cls, row: Mapping[str, Any]) -> Self:
        """The row of the engine, in the terms of this class."""
        found: dict[str, Any] = {}
        for column in cls.columns():
            for name in (*cls._from_engine.get(column, ()), column):
                if row.get(name) is not None:
                    found[column] = _plain(row[name])
                    break
        if isinstance(found.get("state"), str):
            found["state"] = found["state"].upper()
        if "/" in str(found.get("name", "")) and cls in (ActorState, PlacementGroupState):
            from aktis import _actor

            # The engine knows one name; namespaces are ours.
            found["namespace"], found["name"] = _actor.split_name(found["name"])
            if cls is ActorState:
                found["ray_namespace"] = found["namespace"]
        return cls(**found)

    def asdict(self) -> dict[str, Any]:
        """The row as a dict of its own."""
        return dict(self)

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns())

    def __len__(self) -> int:
        return len(self.columns())


def _plain(value: Any) -> Any:
    """Ids become hexadecimal text; all else stays."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


@dataclass(eq=False)
class TaskState(Row):
    """A task, or a call of an actor."""

    _key: ClassVar[str] = "task_id"
    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {
        "task_id": ("task", "id"),
        "name": ("function",),
        "func_or_class_name": ("function", "name"),
        "type": ("kind",),
        "attempt_number": ("attempt",),
        "actor_id": ("actor",),
        "job_id": ("job",),
        "node_id": ("node",),
        "worker_id": ("worker",),
        "worker_pid": ("pid",),
        "parent_task_id": ("parent",),
        "required_resources": ("resources",),
        "placement_group_id": ("group",),
        "error_message": ("error",),
        "state": ("status",),
    }

    task_id: str = ""
    name: str = ""
    state: str = ""
    type: str = "NORMAL_TASK"
    func_or_class_name: str = ""
    attempt_number: int = 0
    job_id: str | None = None
    actor_id: str | None = None
    node_id: str | None = None
    worker_id: str | None = None
    worker_pid: int | None = None
    parent_task_id: str | None = None
    placement_group_id: str | None = None
    required_resources: dict[str, float] | None = None
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    error_type: str | None = None
    error_message: str | None = None


@dataclass(eq=False)
class ActorState(Row):
    """An actor."""

    _key: ClassVar[str] = "actor_id"
    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {
        "actor_id": ("actor", "id"),
        "class_name": ("type_name", "type", "class"),
        "job_id": ("job",),
        "node_id": ("node",),
        "worker_id": ("worker",),
        "num_restarts": ("restarts",),
        "is_detached": ("detached",),
        "required_resources": ("resources",),
        "placement_group_id": ("group",),
        "death_cause": ("error", "cause"),
        "state": ("status",),
    }

    actor_id: str = ""
    class_name: str = ""
    state: str = ""
    name: str = ""
    namespace: str = ""
    ray_namespace: str = ""
    pid: int | None = None
    job_id: str | None = None
    node_id: str | None = None
    worker_id: str | None = None
    num_restarts: int = 0
    is_detached: bool = False
    required_resources: dict[str, float] | None = None
    placement_group_id: str | None = None
    death_cause: str | None = None
    repr_name: str = ""


@dataclass(eq=False)
class ObjectState(Row):
    """An object."""

    _key: ClassVar[str] = "object_id"
    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {
        "object_id": ("object", "id"),
        "object_size": ("size", "bytes"),
        "state": ("status",),
        "node_id": ("node",),
        "type": ("kind",),
        "reference_type": ("reference",),
        "call_site": ("task", "function"),
    }

    object_id: str = ""
    object_size: int = 0
    state: str = ""
    node_id: str | None = None
    pid: int | None = None
    ip: str | None = None
    type: str | None = None
    reference_type: str | None = None
    call_site: str | None = None
    holders: list[Any] = field(default_factory=list)
    pinned: bool | None = None
    spilled: bool | None = None


@dataclass(eq=False)
class NodeState(Row):
    """A node."""

    _key: ClassVar[str] = "node_id"
    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {
        "node_id": ("node", "id"),
        "node_ip": ("address", "ip"),
        "node_name": ("name", "host"),
        "resources_total": ("resources", "total"),
        "resources_available": ("available",),
        "state": ("status",),
        "is_head_node": ("head",),
    }

    node_id: str = ""
    node_ip: str = "127.0.0.1"
    node_name: str = ""
    state: str = "ALIVE"
    is_head_node: bool = True
    resources_total: dict[str, float] = field(default_factory=dict)
    resources_available: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class WorkerState(Row):
    """A process that runs tasks or an actor."""

    _key: ClassVar[str] = "worker_id"
    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {
        "worker_id": ("worker", "id"),
        "worker_type": ("type", "kind"),
        "node_id": ("node",),
        "job_id": ("job",),
        "is_alive": ("alive",),
        "running": ("function", "task"),
        "actor_id": ("actor",),
        "state": ("status",),
    }

    worker_id: str = ""
    pid: int | None = None
    is_alive: bool = True
    worker_type: str = "WORKER"
    state: str = ""
    node_id: str | None = None
    job_id: str | None = None
    actor_id: str | None = None
    running: str | None = None
    ip: str = "127.0.0.1"
    exit_type: str | None = None
    exit_detail: str | None = None


@dataclass(eq=False)
class PlacementGroupState(Row):
    """A placement group."""

    _key: ClassVar[str] = "placement_group_id"
    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {
        "placement_group_id": ("group", "id"),
        "creator_job_id": ("job",),
        "is_detached": ("detached",),
        "state": ("status",),
    }

    placement_group_id: str = ""
    name: str = ""
    namespace: str = ""
    state: str = ""
    strategy: str = "PACK"
    bundles: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    creator_job_id: str | None = None
    is_detached: bool = False


@dataclass(frozen=True)
class DriverInfo:
    """The process of a job's driver."""

    pid: int


@dataclass(eq=False)
class JobState(Row):
    """A program that uses the session."""

    _key: ClassVar[str] = "job_id"
    _from_engine: ClassVar[dict[str, tuple[str, ...]]] = {"job_id": ("job", "id"), "driver_pid": ("pid",)}

    job_id: str = ""
    status: str = "RUNNING"
    type: str = "DRIVER"
    driver_pid: int | None = None
    driver_info: DriverInfo | None = None
    entrypoint: str = ""
