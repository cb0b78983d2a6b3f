"""How keys of the key-value space begin: those of users, and those that the library keeps for itself.

The control process has room of its own for the latter (`OWN_KEY_PREFIX` in `crates/protocol/src/limits.rs`),
so that programs can attach when users have filled the rest.
"""


class OwnNamespace(str):
    """A namespace of the library. A user's namespace with the same name is another one."""

    __slots__ = ()


def full_key(key: bytes, namespace: str | bytes | None) -> bytes:
    """The key as the cluster has it."""
    space = namespace.encode() if isinstance(namespace, str) else namespace or b""
    begin = b"aktis" if isinstance(namespace, OwnNamespace) else b"user"
    return b"%s/%d/%s/%s" % (begin, len(space), space, key)
