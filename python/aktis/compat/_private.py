"""Names below `ray._private` that public libraries use, answered from the public API."""

import logging
from collections.abc import Callable
from typing import Any

import aktis
from aktis.util import debug, state

logger = logging.getLogger("ray")
"""`ray.logger`: libraries write their own lines with it."""


def get_node_ip_address(address: str = "") -> str:
    """The address of this machine, as others reach it."""
    return aktis.util.get_node_ip_address()


def memory_summary(*_: Any, **__: Any) -> str:
    """Who holds what, and why, as text for people."""
    return debug.memory_summary()


def store_stats_summary(*_: Any, **__: Any) -> str:
    """The object store in numbers, as text."""
    return "\n".join(f"{name}: {value}" for name, value in debug.store_stats().items())


def free(object_refs: Any, local_only: bool = False) -> None:
    """Objects are freed when nobody refers to them: nothing is left to be done by hand."""


def global_gc() -> None:
    """Collects garbage, in this process."""
    import gc

    gc.collect()


# --- ray._private.state ---------------------------------------------------------------------------


def actors(actor_id: str | None = None) -> dict[str, dict[str, Any]]:
    """The actors by their ids, in Ray's old form."""
    rows: dict[str, dict[str, Any]] = {
        row.actor_id: {
            "ActorID": row.actor_id,
            "ActorClassName": row.class_name,
            "Name": row.name,
            "State": row.state,
            "JobID": row.job_id,
            "Address": {"NodeID": row.node_id, "IPAddress": "127.0.0.1"},
            "NumRestarts": row.num_restarts,
            "DeathCause": row.death_cause,
            "Pid": row.pid,
        }
        for row in state.list_actors(limit=1 << 62)
    }
    return rows.get(actor_id, {}) if actor_id is not None else rows


def jobs() -> list[dict[str, Any]]:
    """The programs that use the cluster, or have used it."""
    return debug.jobs()


def node_ids() -> list[str]:
    """The resources that stand for the living nodes, one of each."""
    return [
        name
        for node in aktis.nodes()
        for name in node["Resources"]
        if node["Alive"] and name.startswith("node:") and "__internal" not in name
    ]


def current_node_id() -> str:
    """The resource that stands for this node."""
    return f"node:{get_node_ip_address()}"


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """What each node has in all."""
    return {node["NodeID"]: dict(node["Resources"]) for node in aktis.nodes() if node["Alive"]}


class GlobalState:
    """`ray._private.state.state`: the same questions as methods."""

    def _initialize_global_state(self, *_: Any, **__: Any) -> None:
        aktis.get_runtime_context().get_node_id()

    def node_table(self) -> list[dict[str, Any]]:
        return aktis.nodes()

    def actor_table(self, actor_id: str | None = None, *_: Any) -> dict[str, Any]:
        return actors(actor_id)

    def job_table(self) -> list[dict[str, Any]]:
        return debug.jobs()

    def cluster_resources(self) -> dict[str, float]:
        return aktis.cluster_resources()

    def available_resources(self) -> dict[str, float]:
        return aktis.available_resources()

    def _available_resources_per_node(self) -> dict[str, dict[str, float]]:
        return debug.available_resources_per_node()

    def placement_group_table(self, *_: Any) -> dict[str, Any]:
        return aktis.util.placement_group_table()


global_state = GlobalState()


# --- ray._private.worker --------------------------------------------------------------------------


class _Node:
    """What libraries ask the node of `global_worker` for."""

    @property
    def node_ip_address(self) -> str:
        return get_node_ip_address()

    @property
    def unique_id(self) -> str:
        return aktis.get_runtime_context().get_node_id()

    @property
    def address_info(self) -> dict[str, Any]:
        here = aktis.get_runtime_context()
        return {"gcs_address": here.gcs_address, "node_id": here.get_node_id()}

    def get_session_dir_path(self) -> str:
        import tempfile

        return tempfile.gettempdir()

    def is_head(self) -> bool:
        return any(
            "node:__internal_head__" in node["Resources"]
            for node in aktis.nodes()
            if node["NodeID"] == self.unique_id
        )


class _CoreWorker:
    """Ids of the calling code."""

    def get_current_task_id(self) -> Any:
        return aktis.get_runtime_context().task_id

    def get_actor_id(self) -> Any:
        return aktis.get_runtime_context().actor_id

    def get_worker_id(self) -> Any:
        return aktis.get_runtime_context().worker_id

    def get_current_job_id(self) -> Any:
        return aktis.get_runtime_context().job_id

    def get_current_node_id(self) -> Any:
        return aktis.get_runtime_context().node_id

    def get_all_reference_counts(self) -> dict[str, dict[str, int]]:
        return debug.reference_counts()

    def object_exists(self, ref: Any) -> bool:
        return debug.object_exists(ref)


class Worker:
    """`ray._private.worker.global_worker`."""

    node = _Node()

    @property
    def connected(self) -> bool:
        return aktis.is_initialized()

    @property
    def mode(self) -> int | None:
        if not aktis.is_initialized():
            return None
        is_worker = aktis.get_runtime_context().get_task_id() is not None
        return aktis.WORKER_MODE if is_worker else aktis.SCRIPT_MODE

    @property
    def core_worker(self) -> _CoreWorker:
        if not aktis.is_initialized():
            raise AttributeError("there is no session, and so no core_worker\nhint: call ray.init() first")
        return _CoreWorker()

    @property
    def current_job_id(self) -> Any:
        return aktis.get_runtime_context().job_id

    @property
    def current_node_id(self) -> Any:
        return aktis.get_runtime_context().node_id

    @property
    def worker_id(self) -> bytes:
        return bytes(aktis.get_runtime_context().worker_id.binary())

    @property
    def actor_id(self) -> Any:
        return aktis.get_runtime_context().actor_id

    @property
    def namespace(self) -> str:
        return aktis.get_runtime_context().namespace

    @property
    def runtime_env(self) -> dict[str, Any]:
        return aktis.get_runtime_context().runtime_env

    def check_connected(self) -> None:
        if not self.connected:
            raise RuntimeError("there is no session\nhint: call ray.init() first")


global_worker = Worker()


# --- ray._private.utils and test_utils ------------------------------------------------------------


def binary_to_hex(identifier: bytes) -> str:
    """An id as text."""
    return identifier.hex()


def hex_to_binary(identifier: str) -> bytes:
    """An id as bytes."""
    return bytes.fromhex(identifier)


def get_num_cpus(*_: Any, **__: Any) -> int:
    """CPUs that this process may use."""
    import os

    return len(os.sched_getaffinity(0))


def get_system_memory(*_: Any, **__: Any) -> int:
    """The machine's memory, in bytes."""
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def get_used_memory() -> int:
    """Memory of the machine that is in use, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
    return sizes["MemTotal"] - sizes["MemAvailable"]


def wait_for_condition(
    condition_predictor: Callable[..., Any],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Waits until a function gives something true; RuntimeError if that takes longer than `timeout`."""
    import time

    deadline = time.monotonic() + timeout
    last: BaseException | None = None
    while time.monotonic() <= deadline:
        try:
            if condition_predictor(**kwargs):
                return
            last = None
        except Exception as error:
            if raise_exceptions:
                raise
            last = error
        time.sleep(retry_interval_ms / 1000)
    raise RuntimeError(f"The condition wasn't met before the timeout expired. Last exception: {last!r}")


@aktis.remote(num_cpus=0)
class SignalActor:
    """An actor that others wait for."""

    def __init__(self) -> None:
        import asyncio

        self.ready_event = asyncio.Event()
        self.num_waiters = 0

    async def send(self, clear: bool = False) -> None:
        """Lets all go on who wait."""
        self.ready_event.set()
        if clear:
            self.ready_event.clear()

    async def wait(self, should_wait: bool = True) -> None:
        """Waits for `send`."""
        if should_wait:
            self.num_waiters += 1
            try:
                await self.ready_event.wait()
            finally:
                self.num_waiters -= 1

    async def cur_num_waiters(self) -> int:
        """How many wait."""
        return self.num_waiters
