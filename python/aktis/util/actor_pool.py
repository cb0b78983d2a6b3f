"""A fixed set of actors, and work that is spread over them: a new item goes to whichever actor is idle.

For actors that can double a number:

    pool = ActorPool([Doubler.remote(), Doubler.remote()])
    print(list(pool.map(lambda actor, value: actor.double.remote(value), [1, 2, 3, 4])))  # [2, 4, 6, 8]
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["ActorPool"]

Submit = Callable[[Any, Any], Any]


class ActorPool:
    """Spreads calls over `actors`, one call at a time on each.

    `submit` and the `get_next` functions are the pieces; `map` and `map_unordered` put them together. The
    pool is for one thread; it holds no thread of its own, so an item that found no idle actor is sent when
    a result is taken out.
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        self._idle: list[Any] = list(actors)
        self._calls: dict[Any, tuple[int, Any]] = {}
        """What runs: the reference (or references) of a call -> its number and its actor."""
        self._by_number: dict[int, Any] = {}
        self._waiting: deque[tuple[Submit, Any]] = deque()
        self._submitted = 0
        self._returned = 0
        self._sorted = True
        """False once a result was taken out of order, until the pool is empty."""

    def map(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """The results of `fn(actor, value)` for each value, in the order of `values`.

        `fn` starts a call and returns its reference. Work begins at once; results that nobody has taken out
        of the pool before are dropped.

            for result in pool.map(lambda actor, value: actor.double.remote(value), range(100)):
                ...
        """
        self._restart(fn, values)
        return self._drain(self.get_next)

    def map_unordered(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """Like `map`, but each result comes as soon as it is there."""
        self._restart(fn, values)
        return self._drain(self.get_next_unordered)

    def submit(self, fn: Submit, value: Any) -> None:
        """Runs `fn(actor, value)` on an idle actor, now or when one is free.

        Its result is taken out with `get_next` or `get_next_unordered`.
        """
        if self._idle:
            self._start(self._idle.pop(), fn, value)
        else:
            self._waiting.append((fn, value))

    def has_next(self) -> bool:
        """Whether there is a result to take out, be it finished or not."""
        return bool(self._calls)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in the order of submission, waiting for it.

        Raises `TimeoutError` if it is not there after `timeout` seconds. The result can be asked for again
        then, unless `ignore_if_timedout` is set: that one is skipped. If the call failed, its exception is
        raised, and the actor goes on to the next item; an actor that died leaves the pool.
        """
        self._require_next()
        if not self._sorted:
            raise ValueError(
                "`get_next` after `get_next_unordered`: the order of what is left is lost\n"
                "hint: take the rest out with `get_next_unordered`, or use one of both throughout"
            )
        return self._take(self._by_number[self._returned], timeout, ignore_if_timedout)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Any result, the first that is there. `timeout` and `ignore_if_timedout` are as in `get_next`."""
        import aktis

        self._require_next()
        keys = {_last(key): key for key in self._calls}
        ready, _ = aktis.wait(list(keys), num_returns=1, timeout=timeout)
        if ready:
            key = keys[ready[0]]
        elif ignore_if_timedout:
            key = next(iter(self._calls))
        else:
            raise TimeoutError(f"no result after {timeout} s")
        number = self._calls[key][0]
        if number != self._returned:
            self._sorted = False
        return self._take(key, 0 if not ready else None, ignore_if_timedout)

    def has_free(self) -> bool:
        """Whether an actor is idle and nothing waits for it."""
        return bool(self._idle) and not self._waiting

    def pop_idle(self) -> Any | None:
        """Takes an idle actor out of the pool; None if there is none."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Adds an actor to the pool. Raises ValueError if it is in the pool already."""
        busy = [actor for _, actor in self._calls.values()]
        if actor in self._idle or actor in busy:
            raise ValueError(f"the actor {actor!r} is in this pool already")
        self._give_back(actor)

    @property
    def _idle_actors(self) -> list[Any]:
        """The actors that have nothing to do, under the name that programs look for."""
        return self._idle

    @property
    def _pending_submits(self) -> list[tuple[Submit, Any]]:
        """What waits for an actor, under the name that programs look for."""
        return list(self._waiting)

    def _restart(self, fn: Submit, values: Iterable[Any]) -> None:
        self._waiting.clear()
        while self._calls:
            key, (number, actor) = next(iter(self._calls.items()))
            self._forget(key, number)
            self._idle.append(actor)
        if not self._idle:
            raise ValueError("the pool has no actors\nhint: add one with `pool.push(actor)`")
        for value in values:
            self.submit(fn, value)

    def _drain(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield take()

    def _start(self, actor: Any, fn: Submit, value: Any) -> None:
        try:
            references = fn(actor, value)
        except BaseException:
            self._idle.append(actor)
            raise
        key = tuple(references) if isinstance(references, list) else references
        self._calls[key] = (self._submitted, actor)
        self._by_number[self._submitted] = key
        self._submitted += 1

    def _take(self, key: Any, timeout: float | None, ignore_if_timedout: bool) -> Any:
        import aktis

        late = False
        if timeout is not None:
            ready, _ = aktis.wait([_last(key)], num_returns=1, timeout=timeout)
            late = not ready
        if late and not ignore_if_timedout:
            raise TimeoutError(f"no result after {timeout} s")
        number, actor = self._calls[key]
        self._forget(key, number)
        if late:
            self._give_back(actor)
            raise TimeoutError(f"no result after {timeout} s; call {number} of this pool is skipped")
        try:
            result = aktis.get(list(key) if isinstance(key, tuple) else key)
        except aktis.exceptions.ActorError:
            # The actor is dead: it is not in the pool any more, and the others go on.
            self._serve_waiting()
            raise
        except BaseException:
            self._give_back(actor)
            raise
        self._give_back(actor)
        return result

    def _forget(self, key: Any, number: int) -> None:
        del self._calls[key]
        del self._by_number[number]
        if not self._calls:
            self._returned, self._sorted = self._submitted, True
        else:
            while self._returned not in self._by_number:
                self._returned += 1

    def _give_back(self, actor: Any) -> None:
        self._idle.append(actor)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._idle and self._waiting:
            fn, value = self._waiting.popleft()
            self._start(self._idle.pop(), fn, value)

    def _require_next(self) -> None:
        if not self.has_next():
            raise StopIteration("no more results to get")


def _last(key: Any) -> Any:
    """The reference that stands for a call with several results."""
    return key[-1] if isinstance(key, tuple) else key
