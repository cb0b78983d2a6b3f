"""A first-in first-out queue that tasks, actors and drivers share. It can be passed to all of them.

    queue = Queue(maxsize=100)

    @aktis.remote
    def produce(queue: Queue) -> None:
        for number in range(10):
            queue.put(number)

    produce.remote(queue)
    print([queue.get() for _ in range(10)])

The items live in an async actor. `Empty` and `Full` are those of the standard library's `queue`.
"""

from collections.abc import Iterable
from queue import Empty, Full
from typing import Any, Generic, TypeVar

__all__ = ["Empty", "Full", "Queue"]

T = TypeVar("T")

# Each blocked `get` or `put` occupies one of the actor's concurrent calls. It must never be that all of
# them are blocked getters, and no putter gets in.
_CALLS_MAX = 100_000


class Queue(Generic[T]):
    """A queue with the interface of `asyncio.Queue`, plus batches.

    `maxsize` is the largest number of items; 0 means no limit. `actor_options` are options for the actor
    inside, such as `{"num_cpus": 1, "name": "inbox"}`.

    The queue ends when the last copy of it is gone. If the process of its actor dies, its items are lost
    and each operation raises `ActorDiedError`.
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        from aktis.util._runtime import remote

        self.maxsize = maxsize
        options = {"num_cpus": 0, "max_concurrency": _CALLS_MAX, **(actor_options or {})}
        self.actor: Any = remote(_Items).options(**options).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def __repr__(self) -> str:
        return f"Queue(maxsize={self.maxsize}, actor={self.actor!r})"

    def _actor(self) -> Any:
        if self.actor is None:
            from aktis.exceptions import ActorDiedError

            raise ActorDiedError(
                "the queue was shut down\nhint: nothing can be put or taken after shutdown()"
            )
        return self.actor

    def size(self) -> int:
        """The number of items now."""
        return int(_get(self._actor().qsize.remote()))

    def qsize(self) -> int:
        """The number of items now."""
        return self.size()

    def empty(self) -> bool:
        """Whether there is no item now."""
        return self.size() == 0

    def full(self) -> bool:
        """Whether a `put` would have to wait now."""
        return 0 < self.maxsize <= self.size()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item. Waits for room if `block` is set, for ever or for `timeout` seconds; then raises
        `Full`.

        A reference is replaced by its value, as in every call of an actor; inside a container it stays a
        reference.
        """
        if not _get(self._actor().put.remote(item, _patience(block, timeout))):
            raise Full

    async def put_async(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """`put` for coroutines."""
        if not await self._actor().put.remote(item, _patience(block, timeout)):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Takes the oldest item. Waits for one if `block` is set, for ever or for `timeout` seconds; then
        raises `Empty`."""
        item: T = _one(_get(self._actor().get.remote(_patience(block, timeout))))
        return item

    async def get_async(self, block: bool = True, timeout: float | None = None) -> T:
        """`get` for coroutines."""
        item: T = _one(await self._actor().get.remote(_patience(block, timeout)))
        return item

    def put_nowait(self, item: T) -> None:
        """Adds an item, or raises `Full` at once."""
        self.put(item, block=False)

    def get_nowait(self) -> T:
        """Takes the oldest item, or raises `Empty` at once."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[T]) -> None:
        """Adds all of `items`, in order, or none and raises `Full`."""
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise TypeError(f"`items` is {items!r}, not an iterable of items")
        batch = list(items)
        room = _get(self._actor().put_batch.remote(batch))
        if room is not None:
            raise Full(f"{len(batch)} items do not fit, there is room for {room} (maxsize is {self.maxsize})")

    def get_nowait_batch(self, num_items: int) -> list[T]:
        """Takes the `num_items` oldest items, or none and raises `Empty`."""
        if isinstance(num_items, bool) or not isinstance(num_items, int):
            raise TypeError(f"`num_items` is {num_items!r}, not an int")
        if num_items < 0:
            raise ValueError(f"`num_items` is {num_items}, which is negative")
        enough, found = _get(self._actor().get_batch.remote(num_items))
        if not enough:
            raise Empty(f"{num_items} items are wanted, there are {found}")
        items: list[T] = found
        return items

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """Ends the queue, for all who have it. Items in it are lost.

        Operations in progress may finish within `grace_period_s` seconds, unless `force` is set. Later ones
        raise `ActorDiedError`.
        """
        import aktis

        if self.actor is None:
            return
        if not force:
            aktis.wait([self.actor.settle.remote()], num_returns=1, timeout=grace_period_s)
        aktis.kill(self.actor, no_restart=True)
        self.actor = None


class _Items:
    """The actor. Nothing here raises for a full or empty queue: an answer is cheaper than an exception."""

    def __init__(self, maxsize: int) -> None:
        import asyncio

        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)
        self._blocked = 0
        self._settled = asyncio.Event()
        self._settled.set()

    async def qsize(self) -> int:
        return self._queue.qsize()

    async def empty(self) -> bool:
        return self._queue.empty()

    async def full(self) -> bool:
        return self._queue.full()

    async def put(self, item: Any, patience: float | None) -> bool:
        if not self._queue.full():
            self._queue.put_nowait(item)
            return True
        return patience != 0 and await self._blocking(self._queue.put(item), patience) is not None

    async def get(self, patience: float | None) -> tuple[Any, ...]:
        """A tuple of the item; an empty one if there is none."""
        if not self._queue.empty():
            return (self._queue.get_nowait(),)
        if patience == 0:
            return ()
        return await self._blocking(self._queue.get(), patience) or ()

    async def put_batch(self, items: list[Any]) -> int | None:
        """None if all fitted, else how many would."""
        room = self._queue.maxsize - self._queue.qsize()
        if self._queue.maxsize > 0 and room < len(items):
            return room
        for item in items:
            self._queue.put_nowait(item)
        return None

    async def get_batch(self, count: int) -> tuple[bool, Any]:
        """True and the items, or False and how many there are."""
        if self._queue.qsize() < count:
            return False, self._queue.qsize()
        return True, [self._queue.get_nowait() for _ in range(count)]

    async def settle(self) -> None:
        await self._settled.wait()

    async def _blocking(self, operation: Any, patience: float | None) -> tuple[Any] | None:
        """A tuple of what the operation gives, or None if it took too long."""
        import asyncio

        self._blocked += 1
        self._settled.clear()
        try:
            # `asyncio.timeout` cancels the operation itself, so an item is either taken and returned, or
            # not taken.
            async with asyncio.timeout(patience):
                return (await operation,)
        except TimeoutError:
            return None
        finally:
            self._blocked -= 1
            if self._blocked == 0:
                self._settled.set()


def _patience(block: bool, timeout: float | None) -> float | None:
    """How long the actor shall wait: 0 is not at all, None is for ever."""
    if not block:
        return 0
    if timeout is not None and timeout < 0:
        raise ValueError(f"`timeout` is {timeout}, which is negative")
    return timeout


def _get(reference: Any) -> Any:
    import aktis

    return aktis.get(reference)


def _one(items: tuple[Any, ...]) -> Any:
    if not items:
        raise Empty
    return items[0]
