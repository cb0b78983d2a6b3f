"""References in the world of futures: `await ref`, `ref.future()`, `ref.as_future()`.

Callbacks of references come on one thread of each process, which the native part starts at the first need.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from aktis._engine import ObjectRef, native

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures


def await_ref(reference: ObjectRef[Any]) -> Generator[Any, None, Any]:
    """What `await ref` runs. The value is unpickled on the loop's own thread."""
    if not reference.is_ready():
        import asyncio

        yield from _arrival(reference, asyncio.get_running_loop())
    return native.get(reference, None)


def _arrival(reference: ObjectRef[Any], loop: "asyncio.AbstractEventLoop") -> "asyncio.Future[None]":
    arrival = loop.create_future()
    reference.add_done_callback(lambda _: wake(loop, arrival))
    return arrival


def wake(loop: "asyncio.AbstractEventLoop", arrival: "asyncio.Future[None]") -> None:
    """Completes a future of a loop from another thread; a loop that is closed has nobody to tell."""
    try:
        loop.call_soon_threadsafe(_complete, arrival)
    except RuntimeError:
        pass


def _complete(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)


def future_of(reference: ObjectRef[Any]) -> "concurrent.futures.Future[Any]":
    """The reference as a future of `concurrent.futures`; cancelling it does not cancel the task."""
    from concurrent.futures import Future

    made: Future[Any] = Future()

    def settle(done: ObjectRef[Any]) -> None:
        if not made.set_running_or_notify_cancel():
            return
        try:
            made.set_result(native.get(done, None))
        except BaseException as error:
            made.set_exception(error)

    reference.add_done_callback(settle)
    return made


def as_future(reference: ObjectRef[Any]) -> "asyncio.Future[Any]":
    """The reference as a future of the running event loop."""
    import asyncio

    return asyncio.ensure_future(_wait(reference))


async def _wait(reference: ObjectRef[Any]) -> Any:
    return await cast(Any, reference)
