"""Collective operations over groups of actors, tasks and drivers: allreduce, broadcast, send and the like.

    import aktis, numpy

    @aktis.remote
    def worker(rank):
        with aktis.collective.init_group("sum", world_size=4, rank=rank) as group:
            return group.allreduce(numpy.full(3, float(rank)))

    print(aktis.get([worker.remote(rank) for rank in range(4)])[0])

Members on one node share memory; between nodes, one member of each talks to the others through encrypted
streams. The functions with the names of `ray.util.collective` work on groups by name.
"""

from aktis.collective._errors import CollectiveError, CollectiveTimeoutError, MemberDiedError, MismatchError
from aktis.collective._functions import (
    allgather,
    allreduce,
    barrier,
    broadcast,
    create_collective_group,
    destroy_collective_group,
    get_collective_group_size,
    get_group,
    get_rank,
    init_collective_group,
    is_group_initialized,
    recv,
    reduce,
    reducescatter,
    send,
)
from aktis.collective._group import Group, ReduceOp, init_group

__all__ = [
    "CollectiveError",
    "CollectiveTimeoutError",
    "Group",
    "MemberDiedError",
    "MismatchError",
    "ReduceOp",
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
    "init_group",
    "is_group_initialized",
    "recv",
    "reduce",
    "reducescatter",
    "send",
]
