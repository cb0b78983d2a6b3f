"""Where the calling code runs: ids, names and resources of the task, actor, worker, node and job."""

import os
from typing import TYPE_CHECKING, Any

from aktis import _nodes, _options, _runtime_env, _session
from aktis._engine import Context, context, native

if TYPE_CHECKING:
    from aktis._actor import ActorHandle


class RuntimeContext:
    """A view, not a copy: each question is answered for the code that asks."""

    def _here(self) -> Context:
        _session.ensure()
        return context()

    # Ids, as text.

    def get_job_id(self) -> str:
        """The id of the job: what one driver does in one session."""
        return _session.job_id().hex()

    def get_node_id(self) -> str:
        """The id of this node."""
        return self._here().node_id.hex()

    def get_worker_id(self) -> str:
        """The id of this process."""
        return self._here().worker_id.hex()

    def get_task_id(self) -> str | None:
        """The id of the running task; None in the driver."""
        here = self._here()
        return here.task_id.hex() if here.is_worker else None

    def get_actor_id(self) -> str | None:
        """The id of the actor that this is; None outside of actors."""
        actor = self._here().actor_id
        return actor.hex() if actor is not None else None

    def get_placement_group_id(self) -> str | None:
        """The id of the placement group around this; None if there is none."""
        group = self._here().group
        return group[0].hex() if group is not None else None

    # Names.

    def get_task_name(self) -> str | None:
        """The name of the running task; None in the driver."""
        here = self._here()
        return here.function if here.is_worker else None

    def get_task_function_name(self) -> str | None:
        """The name of the function or method that runs, with its module and class; None in the driver."""
        here = self._here()
        if not here.is_worker:
            return None
        if here.actor_id is None:
            function = native.running_function()
            return _full_name(function, function.__qualname__) if function is not None else here.function
        from aktis import _description

        cls = _description.own_class()
        if cls is None:
            return here.function
        method = here.function.rpartition(".")[2]
        own = _description.own()
        if own is not None and own.is_async:
            return f"{_module(cls)}.{cls.__qualname__}.{method}"
        return _full_name(cls, f"{cls.__qualname__}.{method}")

    def get_actor_name(self) -> str | None:
        """The name of the actor that this is; "" if it has none, None outside of actors."""
        if self._here().actor_id is None:
            return None
        full = _runtime_env.applied().get("actor_name")
        if full is None:
            return ""
        from aktis._actor import split_name

        return split_name(full)[1]

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return _session.namespace()

    def get_session_name(self) -> str:
        """The name of the session."""
        return f"session_{self.get_job_id()}"

    # The ids again, as values.

    @property
    def job_id(self) -> Any:
        """The id of the job."""
        from aktis._ids import JobID

        return JobID(bytes.fromhex(self.get_job_id()))

    @property
    def node_id(self) -> Any:
        """The id of this node."""
        from aktis._ids import NodeID

        return NodeID(self._here().node_id)

    @property
    def worker_id(self) -> Any:
        """The id of this process."""
        from aktis._ids import WorkerID

        return WorkerID(self._here().worker_id)

    @property
    def task_id(self) -> Any:
        """The id of the running task; None in the driver."""
        from aktis._ids import TaskID

        here = self._here()
        return TaskID(here.task_id) if here.is_worker else None

    @property
    def actor_id(self) -> Any:
        """The id of the actor that this is; None outside of actors."""
        from aktis._ids import ActorID

        actor = self._here().actor_id
        return ActorID(actor) if actor is not None else None

    @property
    def current_placement_group_id(self) -> Any:
        """The id of the placement group around this; None if there is none."""
        from aktis._ids import PlacementGroupID

        group = self._here().group
        return PlacementGroupID(group[0]) if group is not None else None

    # What is here.

    def get_assigned_resources(self) -> dict[str, float]:
        """What the running task or actor holds."""
        return dict(self._here().resources)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The accelerators that the running task or actor may use, by kind."""
        none: dict[str, list[str]] = {kind: [] for kind in _options.ACCELERATORS}
        return none | {"GPU": [str(number) for number in _nodes.get_gpu_ids()]}

    def get_node_labels(self) -> dict[str, str]:
        """The labels of this node."""
        return _nodes.labels()

    def get_runtime_env_string(self) -> str:
        """The runtime environment as JSON."""
        import json

        return json.dumps(self.runtime_env, sort_keys=True)

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The runtime environment: the job's, with that of the task or actor on top."""
        merged = _session.job_environment()
        applied = _runtime_env.applied()
        if "env_vars" in applied:
            merged["env_vars"] = {**merged.get("env_vars", {}), **applied["env_vars"]}
        merged.update({key: applied[key] for key in ("working_dir", "py_modules") if key in applied})
        if "packages" in applied:
            merged = {key: value for key, value in merged.items() if key not in ("pip", "uv")}
            merged[applied["packages"]["tool"]] = applied["packages"]
        return merged

    @property
    def gcs_address(self) -> str:
        """Where the head of the cluster listens; a node that is embedded in the driver has no address."""
        _session.ensure()
        return _nodes.head_address() or "local"

    # The state of the task and the actor.

    def is_canceled(self) -> bool:
        """Whether the running task was cancelled."""
        return native.is_cancelled()

    is_cancelled = is_canceled

    @property
    def attempt_number(self) -> int:
        """How often the running task was tried before."""
        return self._here().attempt

    def get_attempt_number(self) -> int:
        """How often the running task was tried before."""
        return self.attempt_number

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor that this is was started again after its process died."""
        here = self._here()
        if here.actor_id is None:
            raise RuntimeError("was_current_actor_reconstructed was asked for outside of an actor")
        return here.incarnation > 0

    @property
    def current_actor(self) -> "ActorHandle[Any]":
        """A handle of the actor that this is."""
        actor = self._here().actor_id
        if actor is None:
            raise RuntimeError("current_actor was asked for outside of an actor")
        from aktis._handle import current_handle

        return current_handle(actor)

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether what this submits runs in its placement group too."""
        return _runtime_env.inherited_group() is not None

    def get(self) -> dict[str, Any]:
        """The ids as values, those that there are."""
        found = {
            "job_id": self.job_id,
            "node_id": self.node_id,
            "task_id": self.task_id,
            "actor_id": self.actor_id,
            "namespace": self.namespace,
        }
        return {name: value for name, value in found.items() if value is not None}

    def __repr__(self) -> str:
        return f"RuntimeContext({self.get()})"


def _full_name(thing: Any, qualified: str) -> str:
    """The name with the module, without the functions around."""
    from aktis._signature import short_name

    return f"{_module(thing)}.{short_name(qualified)}"


def _module(thing: Any) -> str:
    """The module of a function or class. Ray's workers import the program under its own name."""
    module = str(thing.__module__)
    if module == "__main__" and os.environ.get("AKTIS_COMPAT") == "1":
        return str(_runtime_env.job().get("main", module))
    return module


_context = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """Where the calling code runs."""
    return _context
