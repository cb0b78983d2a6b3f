"""The key-value space under the names that existing programs import. New ones use `aktis.util.debug.kv_*`."""

from aktis.util import debug

__all__ = [
    "_internal_kv_del",
    "_internal_kv_exists",
    "_internal_kv_get",
    "_internal_kv_initialized",
    "_internal_kv_list",
    "_internal_kv_put",
]

Text = str | bytes


def _internal_kv_initialized() -> bool:
    """Whether there is a session."""
    import aktis

    return aktis.is_initialized()


def _internal_kv_put(
    key: Text, value: Text, overwrite: bool = True, *, namespace: Text | None = None
) -> bool:
    """Stores a value. True if the key had one *already*, unlike `kv_put`."""
    return not debug.kv_put(key, value, overwrite, namespace)


def _internal_kv_get(key: Text, *, namespace: Text | None = None) -> bytes | None:
    """The value of a key, or None."""
    return debug.kv_get(key, namespace)


def _internal_kv_exists(key: Text, *, namespace: Text | None = None) -> bool:
    """Whether the key has a value."""
    return debug.kv_exists(key, namespace)


def _internal_kv_del(key: Text, *, del_by_prefix: bool = False, namespace: Text | None = None) -> int:
    """Deletes a key, or all that begin with it. How many there were."""
    return debug.kv_del(key, del_by_prefix, namespace)


def _internal_kv_list(prefix: Text, *, namespace: Text | None = None) -> list[bytes]:
    """The keys that begin with `prefix`."""
    return debug.kv_list(prefix, namespace)
