"""Aktis: tasks, actors and objects over many processes, with the names that users of Ray know.

```
import aktis

@aktis.remote
def square(x):
    return x * x

print(aktis.get([square.remote(i) for i in range(4)]))
```

What is used rarely is imported at its first use, so that `import aktis` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

from aktis import exceptions
from aktis._actor import ActorClass, ActorHandle, ActorMethod, exit_actor, get_actor, method
from aktis._checkpoint import checkpoint
from aktis._decorators import remote
from aktis._engine import ObjectRef, native
from aktis._generator import DynamicObjectRefGenerator, ObjectRefGenerator
from aktis._ids import (
    ActorClassID,
    ActorID,
    FunctionID,
    JobID,
    NodeID,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from aktis._nodes import available_resources, cluster_resources, get_gpu_ids, nodes, timeline
from aktis._objects import cancel, explain, get, kill, put, wait
from aktis._remote_function import RemoteFunction
from aktis._runtime_context import get_runtime_context
from aktis._session import Session, init, is_initialized, shutdown

ObjectID = ObjectRef
"""The name that old programs know references by."""

if TYPE_CHECKING:
    from aktis import actor, collective, runtime_context, runtime_env, util

__version__ = native.version()
__commit__ = ""

LOCAL_MODE = 2
SCRIPT_MODE = 0
WORKER_MODE = 1

__all__ = [
    "ActorClass",
    "ActorClassID",
    "ActorHandle",
    "ActorID",
    "ActorMethod",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "RemoteFunction",
    "Session",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "__version__",
    "actor",
    "available_resources",
    "cancel",
    "checkpoint",
    "cluster_resources",
    "collective",
    "exceptions",
    "exit_actor",
    "explain",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "runtime_context",
    "runtime_env",
    "shutdown",
    "timeline",
    "util",
    "wait",
]

_MODULES = frozenset(
    (
        "actor",
        "autoscaler",
        "cluster_utils",
        "collective",
        "compat",
        "dag",
        "experimental",
        "job_config",
        "rl",
        "runtime_context",
        "runtime_env",
        "simulate",
        "train",
        "tune",
        "util",
    )
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        try:
            return importlib.import_module(f"aktis.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"aktis.{name}":
                raise
    raise AttributeError(f"module 'aktis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(__all__) | _MODULES)
