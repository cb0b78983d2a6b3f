"""Runtime environments as values: `RuntimeEnv(env_vars={...}, working_dir=...)`."""

from aktis._runtime_env import RuntimeEnv

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]


class RuntimeEnvConfig(dict[str, object]):
    """How an environment is set up; accepted, and without effect where nothing has to be set up."""
