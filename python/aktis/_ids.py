"""Ids as values: bytes with a type, comparable, hashable, printable."""

from typing import Any, Self

ID_BYTES = 16


class BaseID:
    """What all ids have in common. An id knows nothing; it only names something."""

    __slots__ = ("_binary",)

    def __init__(self, binary: bytes) -> None:
        if not isinstance(binary, bytes):
            raise TypeError(
                f"an id is made of bytes, not of {type(binary).__name__}\nhint: from_hex takes text"
            )
        self._binary = binary

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """The id that `hex()` gave this text for."""
        return cls(bytes.fromhex(text))

    @classmethod
    def from_binary(cls, binary: bytes) -> Self:
        """The id that `binary()` gave these bytes for."""
        return cls(binary)

    @classmethod
    def from_random(cls) -> Self:
        """An id that nothing has."""
        import os

        return cls(os.urandom(ID_BYTES))

    @classmethod
    def nil(cls) -> Self:
        """The id of nothing."""
        return cls(b"\xff" * ID_BYTES)

    @classmethod
    def size(cls) -> int:
        """How many bytes an id has."""
        return ID_BYTES

    def is_nil(self) -> bool:
        """Whether this is the id of nothing."""
        return not self._binary.strip(b"\xff")

    def binary(self) -> bytes:
        """The id as bytes."""
        return self._binary

    def hex(self) -> str:
        """The id as text."""
        return self._binary.hex()

    def __bytes__(self) -> bytes:
        return self._binary

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._binary == self._binary

    def __lt__(self, other: Any) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._binary < other._binary)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._binary))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._binary.hex()})"

    def __str__(self) -> str:
        return self.__repr__()

    def __reduce__(self) -> Any:
        return type(self), (self._binary,)


class UniqueID(BaseID):
    """The id of something that has no type of its own here."""

    __slots__ = ()


class TaskID(BaseID):
    """Names a task."""

    __slots__ = ()


class ActorID(BaseID):
    """Names an actor, across its restarts."""

    __slots__ = ()


class ActorClassID(BaseID):
    """Names an exported actor class."""

    __slots__ = ()


class FunctionID(BaseID):
    """Names an exported function."""

    __slots__ = ()


class NodeID(BaseID):
    """Names a node."""

    __slots__ = ()


class JobID(BaseID):
    """Names a job: what one driver does in one session."""

    __slots__ = ()

    @classmethod
    def from_int(cls, number: int) -> Self:
        """The id of the job with this number."""
        return cls(number.to_bytes(8, "big"))

    def int(self) -> int:
        """The id as a number."""
        return int.from_bytes(self._binary, "big")


class WorkerID(BaseID):
    """Names a worker process."""

    __slots__ = ()


class PlacementGroupID(BaseID):
    """Names a placement group."""

    __slots__ = ()
