"""Functions with the names and arguments that users of `ray.util.collective` know, over groups by name."""

import json
import os
import threading
from collections.abc import Sequence
from typing import Any

from aktis.collective._arrays import empty_like, is_torch, shape_of
from aktis.collective._group import DEFAULT_TIMEOUT, Group, ReduceOp, init_group

__all__ = [
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "create_collective_group",
    "destroy_collective_group",
    "get_collective_group_size",
    "get_group",
    "get_rank",
    "init_collective_group",
    "is_group_initialized",
    "recv",
    "reduce",
    "reducescatter",
    "send",
]

_groups: dict[str, Group] = {}
_lock = threading.Lock()
_owner = os.getpid()

# Where `create_collective_group` says which actor has which rank.
_NAMESPACE = "aktis.collective"


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = "aktis",
    group_name: str = "default",
    *,
    timeout: float = DEFAULT_TIMEOUT,
) -> None:
    """Makes this process member `rank` of a group. `backend` is there for programs that give one."""
    with _lock:
        _forget_after_fork()
        if group_name in _groups:
            raise RuntimeError(
                f"this process is in a group {group_name!r} already\n"
                "hint: call `destroy_collective_group` first, or give another `group_name`"
            )
    group = init_group(group_name, world_size, rank, timeout=timeout)
    with _lock:
        _groups[group_name] = group


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = "aktis",
    group_name: str = "default",
) -> None:
    """Says which actor has which rank; each joins when it first uses the group."""
    from aktis.util import debug

    if len(actors) != world_size or sorted(ranks) != list(range(world_size)):
        raise ValueError(
            f"{len(actors)} actors and ranks {list(ranks)} do not make a group of {world_size}\n"
            "hint: give each actor a rank of its own, from 0 on"
        )
    members = {actor._actor_id.hex(): rank for actor, rank in zip(actors, ranks)}
    if not debug.kv_put(group_name, json.dumps(members), overwrite=False, namespace=_NAMESPACE):
        raise RuntimeError(
            f"there is a group {group_name!r} already\nhint: call `destroy_collective_group` first"
        )


def destroy_collective_group(group_name: str = "default") -> None:
    """Leaves a group, and forgets what `create_collective_group` said of it."""
    from aktis.util import debug

    with _lock:
        group = _groups.pop(group_name, None)
    if group is not None:
        group.destroy()
    debug.kv_del(group_name, namespace=_NAMESPACE)


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process is in the group."""
    return group_name in _groups


def get_group(group_name: str = "default") -> Group:
    """The group of this name that this process is in; it joins first if `create_collective_group` said so."""
    group = _groups.get(group_name)
    if group is not None and _owner == os.getpid():
        return group
    rank, size = _declared(group_name)
    init_collective_group(size, rank, group_name=group_name)
    return _groups[group_name]


def _declared(group_name: str) -> tuple[int, int]:
    import aktis
    from aktis.util import debug

    text = debug.kv_get(group_name, namespace=_NAMESPACE)
    members = json.loads(text) if text is not None else {}
    actor = aktis.get_runtime_context().get_actor_id()
    if actor not in members:
        raise RuntimeError(
            f"this process is not in a group {group_name!r}\n"
            "hint: call `init_collective_group` in each member, or `create_collective_group` in the driver"
        )
    return members[actor], len(members)


def _forget_after_fork() -> None:
    """A fork of a member is no member."""
    global _owner
    if _owner != os.getpid():
        _groups.clear()
        _owner = os.getpid()


def get_rank(group_name: str = "default") -> int:
    """The rank of this process in the group; -1 if it is not in it."""
    return _groups[group_name].rank if group_name in _groups else -1


def get_collective_group_size(group_name: str = "default") -> int:
    """How many members the group has; -1 if this process is not in it."""
    return _groups[group_name].world_size if group_name in _groups else -1


def allreduce(tensor: Any, group_name: str = "default", op: str = ReduceOp.SUM) -> None:
    """`Group.allreduce`, in place."""
    get_group(group_name).allreduce(tensor, op)


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: str = ReduceOp.SUM) -> None:
    """`Group.reduce`, in place at `dst_rank`."""
    get_group(group_name).reduce(tensor, dst_rank, op)


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """`Group.broadcast`."""
    get_group(group_name).broadcast(tensor, src_rank)


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """`Group.allgather` into a list with an array for each member."""
    group = get_group(group_name)
    _check_list(tensor_list, group)
    for target, part in zip(tensor_list, group.allgather(tensor)):
        target[...] = part


def reducescatter(
    tensor: Any, tensor_list: list[Any], group_name: str = "default", op: str = ReduceOp.SUM
) -> None:
    """`Group.reduce_scatter` of a list with an array for each member; `tensor` gets this member's part."""
    group = get_group(group_name)
    _check_list(tensor_list, group)
    whole = empty_like(tensor, (len(tensor_list), *shape_of(tensor)))
    for index, part in enumerate(tensor_list):
        whole[index] = part
    group.reduce_scatter(whole, op, out=tensor)


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """`Group.send`."""
    get_group(group_name).send(tensor, dst_rank)


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """`Group.recv`."""
    get_group(group_name).recv(tensor, src_rank)


def barrier(group_name: str = "default") -> None:
    """`Group.barrier`."""
    get_group(group_name).barrier()


def _check_list(tensors: list[Any], group: Group) -> None:
    if not isinstance(tensors, list) or len(tensors) != group.world_size:
        what = f"a list of {len(tensors)}" if isinstance(tensors, list) else type(tensors).__name__
        kind = "tensors" if tensors and is_torch(tensors[0]) else "arrays"
        raise ValueError(
            f"expected a list of {group.world_size} {kind}, one for each member, got {what}"
            "\nhint: give one for each rank, in the order of ranks"
        )
