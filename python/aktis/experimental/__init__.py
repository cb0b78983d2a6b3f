"""Names that programs know from elsewhere as experimental. Here they are aliases of the stable ones."""

from typing import TYPE_CHECKING, Any

from aktis.experimental.locations import get_local_object_locations, get_object_locations

if TYPE_CHECKING:
    from aktis.experimental import internal_kv, tqdm_ray

__all__ = ["get_local_object_locations", "get_object_locations", "internal_kv", "tqdm_ray"]


def __getattr__(name: str) -> Any:
    if name in ("internal_kv", "tqdm", "tqdm_ray"):
        from importlib import import_module

        return import_module(f"aktis.experimental.{name}")
    raise AttributeError(f"module 'aktis.experimental' has no attribute {name!r}")
