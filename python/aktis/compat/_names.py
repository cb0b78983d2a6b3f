"""Where Aktis has what Ray keeps in modules that Aktis does not have. Values are `module:name`."""

MOVED: dict[str, dict[str, str]] = {
    "ray": {
        "ActorHandle": "aktis._actor:ActorHandle",
        "ActorClass": "aktis._actor:ActorClass",
    },
    "ray.actor": {
        "ActorClass": "aktis._actor:ActorClass",
        "ActorHandle": "aktis._actor:ActorHandle",
        "ActorMethod": "aktis._actor:ActorMethod",
        "exit_actor": "aktis:exit_actor",
        "method": "aktis:method",
    },
    "ray.remote_function": {"RemoteFunction": "aktis._remote_function:RemoteFunction"},
    "ray.runtime_context": {
        "RuntimeContext": "aktis._runtime_context:RuntimeContext",
        "get_runtime_context": "aktis:get_runtime_context",
    },
    "ray.runtime_env": {"RuntimeEnv": "aktis._runtime_env:RuntimeEnv"},
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
        name: f"aktis:{name}"
        for name in ("ActorID", "JobID", "NodeID", "ObjectRef", "ObjectRefGenerator", "TaskID")
    },
}
"""Names by module of Ray's."""

PACKAGES = frozenset(
    f"ray.{name}"
    for name in (
        *("_common", "_private", "_raylet", "actor", "air", "autoscaler", "client_builder", "cloudpickle"),
        *(
            "cluster_utils",
            "core",
            "cross_language",
            "dag",
            "dashboard",
            "data",
            "exceptions",
            "experimental",
        ),
        *("internal", "job_config", "job_submission", "llm", "remote_function", "rllib", "runtime_context"),
        *("runtime_env", "scripts", "serve", "train", "tune", "types", "util", "widgets", "workflow"),
    )
)
"""Modules of Ray's that are there as attributes of `ray`, without an import of their own."""
