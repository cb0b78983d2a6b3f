"""A group as one of its members sees it."""

from enum import StrEnum
from typing import Any, TypeVar

from aktis.collective import _meeting
from aktis.collective._arrays import empty_like, memory, shape_of
from aktis.collective._door import CollectiveFailure, CollectiveGroup, CollectiveSeat
from aktis.collective._errors import MemberDiedError, exception_of, translated

__all__ = ["DEFAULT_TIMEOUT", "Group", "ReduceOp", "init_group"]

DEFAULT_TIMEOUT = 300.0
"""Seconds that a member waits for the others, if nothing else is said."""

A = TypeVar("A")


class ReduceOp(StrEnum):
    """How the elements of all members become one. Operations take the name as a text as well."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    AVERAGE = "mean"


def init_group(
    name: str = "default",
    world_size: int = 1,
    rank: int = 0,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    address: str | None = None,
) -> "Group":
    """Becomes member `rank` of the group `name`, and waits until all `world_size` members are there.

        group = aktis.collective.init_group("workers", world_size=4, rank=rank)
        group.allreduce(gradients, "mean")

    `timeout` is how many seconds this call, and each operation, waits for the other members. `address` is
    the address of this machine that other machines reach it at; the node's own if it is left out.
    """
    size, rank, timeout = _checked(world_size, rank, timeout)
    seat = _open(address)
    with translated():
        cards, meeting = _meeting.exchange(str(name), rank, size, seat.card(), timeout)
        return Group(str(name), seat.join(rank, cards, timeout), meeting, timeout, address, 0)


class Group:
    """One member of a group of actors, tasks and drivers; made by `init_group`.

    All members make the same calls in the same order. An operation works in place, unless it gets an `out`,
    and returns the array with the result. Arrays are numpy arrays, torch tensors in main memory, and whatever
    has the buffer protocol; they are not copied on the way in or out.

    A group is left by `destroy`, or at the end of a `with` block.
    """

    def __init__(
        self,
        name: str,
        native: CollectiveGroup,
        meeting: Any,
        timeout: float,
        address: str | None,
        generation: int,
    ) -> None:
        self.name = name
        self._native = native
        self._meeting = meeting
        self._timeout = timeout
        self._address = address
        self._generation = generation
        self._dead: set[int] = set()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *exception: object) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"Group({self.name!r}, rank={self.rank}, world_size={self.world_size})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a group belongs to the process that joined it\nhint: call `init_group` in each actor or task"
        )

    @property
    def rank(self) -> int:
        """Which member this is, from 0 on."""
        return self._native.rank

    @property
    def world_size(self) -> int:
        """How many members there are."""
        return self._native.size

    @property
    def machines(self) -> int:
        """How many nodes the members are on."""
        return self._native.machines

    @property
    def timeout(self) -> float:
        """How many seconds an operation waits for the other members."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        with translated():
            self._native.set_timeout(float(seconds))
        self._timeout = float(seconds)

    def allreduce(self, array: A, op: str = "sum", out: A | None = None) -> A:
        """Combines the arrays of all members: their sum, product, min, max or mean, element by element."""
        target = array if out is None else out
        with memory(target, write=True) as (name, output):
            if out is None or out is array:
                self._run("all_reduce", name, _op(op), None, output)
            else:
                with memory(array, write=False) as (input_name, data):
                    _check_types(input_name, name)
                    self._run("all_reduce", name, _op(op), data, output)
        return target

    def reduce(self, array: A, root: int = 0, op: str = "sum", out: A | None = None) -> A:
        """Combines the arrays of all members at `root`. The arrays of the other members stay as they are."""
        if self.rank != root:
            with memory(array, write=False) as (name, data):
                self._run("reduce", name, _op(op), root, data, None)
            return array
        target = array if out is None else out
        with memory(target, write=True) as (name, output):
            if target is array:
                self._run("reduce", name, _op(op), root, output, output)
            else:
                with memory(array, write=False) as (input_name, data):
                    _check_types(input_name, name)
                    self._run("reduce", name, _op(op), root, data, output)
        return target

    def reduce_scatter(self, array: A, op: str = "sum", out: A | None = None) -> A:
        """Combines the arrays of all members. Each one gets its part of the first dimension, by rank."""
        shape = shape_of(array)
        if not shape or shape[0] % self.world_size:
            raise ValueError(
                f"an array of shape {shape} cannot be divided among {self.world_size} members\n"
                "hint: the first dimension must be a multiple of the size of the group"
            )
        target = out if out is not None else empty_like(array, (shape[0] // self.world_size, *shape[1:]))
        with memory(array, write=False) as (name, data), memory(target, write=True) as (other, output):
            _check_types(name, other)
            self._run("reduce_scatter", name, _op(op), data, output)
        return target

    def allgather(self, array: A, out: A | None = None) -> A:
        """The arrays of all members, in the order of ranks: an array with a new first dimension."""
        target = out if out is not None else empty_like(array, (self.world_size, *shape_of(array)))
        with memory(array, write=False) as (name, data), memory(target, write=True) as (other, output):
            _check_types(name, other)
            self._run("all_gather", name, data, output)
        return target

    def broadcast(self, array: A, root: int = 0) -> A:
        """Gives the array of `root` to all members, into their arrays."""
        with memory(array, write=True) as (name, data):
            self._run("broadcast", name, root, data)
        return array

    def send(self, array: Any, to: int) -> None:
        """Sends an array to one member, which calls `recv`. It may return before that."""
        with memory(array, write=False) as (name, data):
            self._run("send", name, to, data)

    def recv(self, array: A, source: int) -> A:
        """Receives what one member sends into an array of the same size and type."""
        with memory(array, write=True) as (name, data):
            self._run("receive", name, source, data)
        return array

    def barrier(self) -> None:
        """Waits for all members."""
        self._run("barrier")

    def regroup(self, timeout: float = 10.0) -> "Group":
        """A new group of the members that are left, after an operation has failed; all of them call this.

        Members keep their order. If it is not known that a member is dead, the others wait for it up to
        `timeout` seconds, and go on without it then.
        """
        _, _, seconds = _checked(1, 0, timeout)
        try:
            # A broken group says why at once; a whole one loses nothing by it.
            self._native.set_timeout(0.0)
            self._native.barrier()
        except CollectiveFailure as failure:
            error = exception_of(failure)
            if isinstance(error, MemberDiedError) and error.rank is not None:
                self._dead.add(error.rank)
        # Each attempt has a meeting of its own.
        self._generation += 1
        seat = _open(self._address)
        meeting = f"{self.name}#{self._generation}"
        dead = sorted(self._dead)
        found, actor = _meeting.regroup(meeting, self.rank, self.world_size, dead, seat.card(), seconds)
        old_ranks = list(found)
        try:
            native = seat.join(old_ranks.index(self.rank), list(found.values()), self._timeout)
        except CollectiveFailure as failure:
            error = exception_of(failure)
            if isinstance(error, MemberDiedError) and error.rank is not None:
                self._dead.add(old_ranks[error.rank])
            raise error from None
        self._native.close()
        return Group(self.name, native, actor, self._timeout, self._address, self._generation)

    def destroy(self) -> None:
        """Leaves the group. Members that still count on this one get `MemberDiedError`."""
        self._native.close()
        self._meeting = None

    def _run(self, operation: str, *args: Any) -> None:
        try:
            getattr(self._native, operation)(*args)
        except CollectiveFailure as failure:
            raise exception_of(failure) from None


def _op(op: str) -> str:
    return op.value if isinstance(op, ReduceOp) else op


def _check_types(one: str, other: str) -> None:
    if one != other:
        raise ValueError(
            f"the input has elements of {one} and the output of {other}\nhint: use the same type"
        )


def _checked(size: int, rank: int, timeout: float) -> tuple[int, int, float]:
    for name, value in (("world_size", size), ("rank", rank)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"`{name}` must be an integer, got {value!r}\nhint: give a whole number")
    if size < 1:
        raise ValueError(f"`world_size` must be at least 1, got {size}\nhint: give the number of members")
    if not 0 <= rank < size:
        raise ValueError(f"`rank` must be from 0 to {size - 1}, got {rank}\nhint: ranks begin with 0")
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < 1e9:
        raise ValueError(
            f"`timeout` must be a positive number of seconds, got {timeout!r}"
            "\nhint: give seconds, e.g. timeout=30"
        )
    return size, rank, float(timeout)


def _open(address: str | None) -> CollectiveSeat:
    """A seat on the node of this process."""
    import aktis

    node = aktis.get_runtime_context().get_node_id()
    if address is None:
        addresses = [row["NodeManagerAddress"] for row in aktis.nodes() if row["NodeID"] == node]
        address = addresses[0] if addresses else aktis.util.get_node_ip_address()
    with translated():
        return CollectiveSeat(node, address)
