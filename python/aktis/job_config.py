"""What a driver says of its job, in one value: `init(job_config=JobConfig(ray_namespace="prod"))`."""

from collections.abc import Mapping
from typing import Any

__all__ = ["JobConfig"]


class JobConfig:
    """A namespace, a runtime environment and metadata of a job.

    `init` takes `ray_namespace` and `runtime_env` from it, unless it is given others. `code_search_path` and
    the rest are kept, and have no effect.
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        _client_job: bool = False,
        metadata: Mapping[str, Any] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _py_driver_sys_path: list[str] | None = None,
    ) -> None:
        if code_search_path is not None and not isinstance(code_search_path, (list, tuple)):
            raise TypeError(f"`code_search_path` is a list of folders, not {code_search_path!r:.80}")
        self.jvm_options = list(jvm_options or ())
        self.code_search_path = list(code_search_path or ())
        self.runtime_env: dict[str, Any] | None = None if runtime_env is None else dict(runtime_env)
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.ray_namespace = ray_namespace
        self.default_actor_lifetime = default_actor_lifetime

    def set_metadata(self, key: str, value: str) -> None:
        """Adds something about the job."""
        self.metadata[key] = value

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Sets the namespace."""
        self.ray_namespace = ray_namespace

    def set_runtime_env(self, runtime_env: Mapping[str, Any] | None, validate: bool = False) -> None:
        """Sets the runtime environment."""
        self.runtime_env = None if runtime_env is None else dict(runtime_env)

    def set_code_search_path(self, code_search_path: list[str]) -> None:
        """Sets where code would be looked for."""
        self.code_search_path = list(code_search_path)
