"""Where Aktis has what Ray keeps in modules that Aktis does not have. Values are `module:name`."""

_PRIVATE = "aktis.compat._private"

MOVED: dict[str, dict[str, str]] = {
    "ray": {"logger": f"{_PRIVATE}:logger"},
    "ray.remote_function": {"RemoteFunction": "aktis._remote_function:RemoteFunction"},
    "ray.types": {"ObjectRef": "aktis:ObjectRef"},
    "ray.cloudpickle": {
        name: f"cloudpickle:{name}"
        for name in (
            "CloudPickler",
            "dump",
            "dumps",
            "load",
            "loads",
            "pickle",
            "register_pickle_by_value",
            "unregister_pickle_by_value",
        )
    },
    **{
        f"ray.dag.{module}": {name: f"aktis.dag:{name}" for name in names}
        for module, names in {
            "class_node": ("ClassNode", "ClassMethodNode"),
            "compiled_dag_node": ("CompiledDAG",),
            "dag_node": ("DAGNode",),
            "function_node": ("FunctionNode",),
            "input_node": ("InputNode", "InputAttributeNode"),
            "output_node": ("MultiOutputNode",),
        }.items()
    },
    "ray._private.services": {"get_node_ip_address": f"{_PRIVATE}:get_node_ip_address"},
    "ray._private.internal_api": {
        name: f"{_PRIVATE}:{name}" for name in ("free", "global_gc", "memory_summary", "store_stats_summary")
    },
    "ray._private.state": {
        **{
            name: f"{_PRIVATE}:{name}"
            for name in ("actors", "current_node_id", "jobs", "node_ids", "total_resources_per_node")
        },
        **{
            name: f"aktis:{name}"
            for name in ("available_resources", "cluster_resources", "nodes", "timeline")
        },
        "GlobalState": f"{_PRIVATE}:GlobalState",
        "available_resources_per_node": "aktis.util.debug:available_resources_per_node",
        "state": f"{_PRIVATE}:global_state",
    },
    "ray._private.worker": {
        **{
            name: f"aktis:{name}"
            for name in (
                *("LOCAL_MODE", "SCRIPT_MODE", "WORKER_MODE", "cancel", "get", "get_actor", "get_gpu_ids"),
                *("init", "is_initialized", "kill", "put", "remote", "shutdown", "wait"),
            )
        },
        "Worker": f"{_PRIVATE}:Worker",
        "global_worker": f"{_PRIVATE}:global_worker",
    },
    "ray._private.utils": {
        name: f"{_PRIVATE}:{name}"
        for name in ("binary_to_hex", "get_num_cpus", "get_system_memory", "get_used_memory", "hex_to_binary")
    },
    "ray._private.test_utils": {name: f"{_PRIVATE}:{name}" for name in ("SignalActor", "wait_for_condition")},
    "ray._common.test_utils": {name: f"{_PRIVATE}:{name}" for name in ("SignalActor", "wait_for_condition")},
    "ray._common.utils": {
        name: f"{_PRIVATE}:{name}" for name in ("binary_to_hex", "get_system_memory", "hex_to_binary")
    },
    "ray.worker": {"global_worker": f"{_PRIVATE}:global_worker"},
    "ray.services": {"get_node_ip_address": f"{_PRIVATE}:get_node_ip_address"},
    "ray.internal": {name: f"{_PRIVATE}:{name}" for name in ("free", "memory_summary")},
    "ray.internal.internal_api": {name: f"{_PRIVATE}:{name}" for name in ("free", "memory_summary")},
    "ray.util.state.common": {
        f"{name}State": f"aktis.util.state:{name}State"
        for name in ("Actor", "Job", "Node", "Object", "PlacementGroup", "Task", "Worker")
    },
    "ray.experimental.state": {},
    "ray.experimental.state.api": {
        name: f"aktis.util.state:{name}"
        for name in (
            *("get_actor", "get_job", "get_node", "get_objects", "get_placement_group", "get_task"),
            *("get_worker", "list_actors", "list_jobs", "list_nodes", "list_objects"),
            *("list_placement_groups", "list_tasks", "list_workers", "summarize_actors"),
            *("summarize_objects", "summarize_tasks"),
        )
    },
    **{
        f"ray.{module}": {name: f"aktis.train:{name}" for name in names}
        for module, names in (
            ("air", ("CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig")),
            ("air.config", ("CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig")),
            ("air.session", ("get_checkpoint", "get_dataset_shard", "report")),
            ("air.result", ("Result",)),
            ("train.data_parallel_trainer", ("DataParallelTrainer",)),
        )
    },
    "ray.tune.search.basic_variant": {"BasicVariantGenerator": "aktis.tune.search:BasicVariantGenerator"},
    "ray._raylet": {
        **{
            name: f"aktis:{name}"
            for name in (
                *("ActorClassID", "ActorID", "DynamicObjectRefGenerator", "FunctionID", "JobID", "NodeID"),
                *("ObjectID", "ObjectRef", "ObjectRefGenerator", "PlacementGroupID", "TaskID", "UniqueID"),
                "WorkerID",
            )
        },
        "StreamingObjectRefGenerator": "aktis:ObjectRefGenerator",
    },
}
"""Names by module of Ray's."""

ABSENT = frozenset({"ray.tune.is_session_enabled"})
"""Names of older versions that libraries try to import and do without. That fails with Ray, too."""

PACKAGES = frozenset(
    f"ray.{name}"
    for name in (
        *("_common", "_private", "_raylet", "actor", "air", "autoscaler", "client_builder", "cloudpickle"),
        *("cluster_utils", "core", "cross_language", "dag", "dashboard", "data", "exceptions"),
        *("experimental", "internal", "job_config", "job_submission", "llm", "remote_function", "rllib"),
        *("runtime_context", "runtime_env", "scripts", "serve", "train", "tune", "types", "util"),
        *("widgets", "worker", "workflow"),
    )
)
"""Modules of Ray's that are there as attributes of `ray`, without an import of their own."""
