"""Where the members of a group find each other: a named actor that exchanges their cards.

The actor has no CPU of its own. Calls of actors are authenticated and encrypted in a cluster, so the cards
that go through it are those of the members.
"""

import asyncio
import time
from typing import Any

__all__ = ["Meeting", "exchange", "regroup"]

# Each waiting member occupies one of the actor's concurrent calls.
_CALLS_MAX = 100_000
_NAMES = "aktis.collective"


class Meeting:
    """Collects one card of each rank, then gives all cards to all."""

    def __init__(self) -> None:
        self.size = 0
        self.cards: dict[int, bytes] = {}
        self.complete: asyncio.Future[list[bytes]] | None = None
        self.dead: set[int] = set()
        self.survivors: asyncio.Future[dict[int, bytes]] | None = None

    async def exchange(self, rank: int, size: int, card: bytes, timeout: float) -> list[bytes]:
        """The cards of all ranks, once all are here."""
        if self.complete is None:
            self.size, self.cards = size, {}
            self.complete = asyncio.get_running_loop().create_future()
        if size != self.size:
            raise ValueError(
                f"rank {rank} joins a group of {size}, but others join a group of {self.size}\n"
                "hint: all members must give the same `world_size`"
            )
        if rank in self.cards:
            raise ValueError(
                f"two members join with rank {rank}\nhint: each member needs a rank of its own, from 0 on"
            )
        self.cards[rank] = card
        complete = self.complete
        if len(self.cards) == size:
            complete.set_result([self.cards[other] for other in range(size)])
            # The next one to come begins a new group.
            self.complete = None
            return complete.result()
        try:
            return await asyncio.wait_for(asyncio.shield(complete), timeout)
        except TimeoutError:
            self.cards.pop(rank, None)
            missing = [other for other in range(size) if other not in self.cards and other != rank]
            raise TimeoutError(
                f"no sign of rank {', '.join(map(str, missing))} within {timeout:g} s\n"
                "hint: all members must join; is one of them still waiting to be placed?"
            ) from None

    async def regroup(
        self, rank: int, size: int, dead: list[int], card: bytes, timeout: float
    ) -> dict[int, bytes]:
        """The cards of all that come, by old rank: once all but the dead are here, or the time is over."""
        if self.survivors is None:
            self.survivors = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(timeout, self._settle)
        if self.survivors.done():
            raise RuntimeError(
                f"the other members have regrouped without rank {rank}, which came too late\n"
                "hint: give `regroup` a longer timeout"
            )
        self.cards[rank] = card
        self.dead.update(dead)
        if len(self.dead | self.cards.keys()) == size:
            self._settle()
        return await asyncio.shield(self.survivors)

    def _settle(self) -> None:
        if self.survivors is not None and not self.survivors.done():
            self.survivors.set_result(dict(sorted(self.cards.items())))


def _meeting(name: str) -> Any:
    import aktis

    options = {"num_cpus": 0, "max_concurrency": _CALLS_MAX, "get_if_exists": True}
    return aktis.remote(Meeting).options(name=f"{_NAMES}:{name}", **options).remote()


def _call(name: str, method: str, timeout: float, *args: Any) -> tuple[Any, Any]:
    """What the meeting answers, and its actor, which must be kept for the others."""
    import aktis
    from aktis.exceptions import ActorDiedError

    deadline = time.monotonic() + timeout
    while True:
        try:
            meeting = _meeting(name)
            return aktis.get(getattr(meeting, method).remote(*args)), meeting
        except (ActorDiedError, ValueError) as error:
            # An earlier group of this name has just ended, and its actor with it.
            is_ended = isinstance(error, ActorDiedError) or "name" in str(error)
            if not is_ended or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def exchange(name: str, rank: int, size: int, card: bytes, timeout: float) -> tuple[list[bytes], Any]:
    """The cards of all members of a new group, and the actor to keep."""
    return _call(name, "exchange", timeout, rank, size, card, timeout)


def regroup(
    name: str, rank: int, size: int, dead: list[int], card: bytes, timeout: float
) -> tuple[dict[int, bytes], Any]:
    """The cards of the members that are left, by old rank, and the actor to keep."""
    return _call(name, "regroup", timeout, rank, size, dead, card, timeout)
