"""Where Aktis has what Ray keeps in modules that Aktis does not have. Values are `module:name`."""

MOVED: dict[str, dict[str, str]] = {
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

PACKAGES = frozenset(
    f"ray.{name}"
    for name in (
        *("_common", "_private", "_raylet", "actor", "air", "autoscaler", "client_builder", "cloudpickle"),
        *("cluster_utils", "core", "cross_language", "dag", "dashboard", "data", "exceptions"),
        *("experimental", "internal", "job_config", "job_submission", "llm", "remote_function", "rllib"),
        *("runtime_context", "runtime_env", "scripts", "serve", "train", "tune", "types", "util"),
        *("widgets", "workflow"),
    )
)
"""Modules of Ray's that are there as attributes of `ray`, without an import of their own."""
