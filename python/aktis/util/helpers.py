"""Small loops around `wait` that most programs would write themselves."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from aktis import ObjectRef

__all__ = ["as_completed", "map_unordered"]

T = TypeVar("T")


def as_completed(
    refs: "Iterable[ObjectRef[T]]", *, chunk_size: int = 10, yield_obj_refs: bool = False, **kwargs: Any
) -> "Iterator[Any]":
    """The values of `refs`, each as soon as it is there; or the references, with `yield_obj_refs`.

        for value in as_completed([work.remote(n) for n in range(100)]):
            ...

    Up to `chunk_size` of those that are there are fetched at once. `kwargs` go to `wait`.
    """
    import aktis

    if chunk_size < 1:
        raise ValueError(f"`chunk_size` is {chunk_size}\nhint: it must be at least 1")
    left = list(refs)
    while left:
        _, _ = aktis.wait(left, num_returns=1, **kwargs)
        ready, left = aktis.wait(left, num_returns=min(chunk_size, len(left)), timeout=0)
        yield from ready if yield_obj_refs else aktis.get(ready)


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    **kwargs: Any,
) -> Iterator[Any]:
    """The results of the remote function `fn` for each item, as they come, with at most `backpressure_size`
    calls under way. `fn` is a remote function or a method of an actor.

        for result in map_unordered(work, range(1_000_000)):
            ...
    """
    import aktis

    submit: Callable[[Any], Any] = fn.remote if hasattr(fn, "remote") else fn
    limit = float("inf") if backpressure_size is None else backpressure_size
    if limit < 1:
        raise ValueError(f"`backpressure_size` is {backpressure_size}\nhint: it must be at least 1")
    running: list[Any] = []
    for item in items:
        running.append(submit(item))
        if len(running) >= limit:
            ready, running = aktis.wait(running, num_returns=1, **kwargs)
            yield from ready if yield_obj_refs else aktis.get(ready)
    yield from as_completed(running, chunk_size=chunk_size, yield_obj_refs=yield_obj_refs, **kwargs)
