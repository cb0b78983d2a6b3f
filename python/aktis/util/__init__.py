"""Tools on top of the core: pools, queues, placement groups, state, metrics, progress bars, drop-ins.

| module | what it has |
|---|---|
| `actor_pool` | `ActorPool`: work spread over a fixed set of actors |
| `queue` | `Queue`: a queue between processes |
| `placement_group`, `scheduling_strategies` | resources reserved together, and where work shall run |
| `multiprocessing`, `joblib` | `Pool` and a joblib backend, for programs that use those |
| `tqdm` | progress bars from tasks and actors |
| `state`, `debug`, `metrics` | what there is, who holds what, and numbers of your own |
| `rpdb` | breakpoints in tasks and actors |
| `check_serialize`, `serialization` | what cannot be pickled, and how to teach it |

The most used names are here as well. All but the placement groups are loaded when they are first used.
"""

from typing import TYPE_CHECKING, Any

# The function has the name of its module. It must be bound after the module is loaded, or it would be
# hidden by it.
from aktis.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

if TYPE_CHECKING:
    from aktis.util.actor_pool import ActorPool
    from aktis.util.check_serialize import inspect_serializability
    from aktis.util.debug import disable_log_once_globally, enable_periodic_logging, log_once
    from aktis.util.helpers import as_completed, map_unordered
    from aktis.util.names import get_node_ip_address, list_named_actors
    from aktis.util.serialization import deregister_serializer, register_serializer

__all__ = [
    "ActorPool",
    "PlacementGroup",
    "as_completed",
    "deregister_serializer",
    "disable_log_once_globally",
    "enable_periodic_logging",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
]

_LAZY = {
    "ActorPool": "actor_pool",
    "as_completed": "helpers",
    "deregister_serializer": "serialization",
    "disable_log_once_globally": "debug",
    "enable_periodic_logging": "debug",
    "get_node_ip_address": "names",
    "inspect_serializability": "check_serialize",
    "list_named_actors": "names",
    "log_once": "debug",
    "map_unordered": "helpers",
    "register_serializer": "serialization",
}

_MODULES = {
    "accelerators",
    "actor_pool",
    "annotations",
    "check_serialize",
    "dask",
    "debug",
    "helpers",
    "joblib",
    "metrics",
    "multiprocessing",
    "queue",
    "rpdb",
    "scheduling_strategies",
    "serialization",
    "state",
    "tqdm",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        value = getattr(import_module(f"aktis.util.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"aktis.util.{name}")
    raise AttributeError(f"module 'aktis.util' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
