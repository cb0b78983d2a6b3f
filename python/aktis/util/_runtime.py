"""The native session behind the current one, for the few utilities that ask the engine itself."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threading import Thread

    from aktis._engine import Runtime


def runtime() -> "Runtime":
    """The session of this thread, else of this process; started if there is none, as any first call does."""
    from aktis import _engine, _hooks

    found = _engine.current()
    if found is None:
        _hooks.ensure_session()
        found = _engine.current()
    if found is None:
        raise RuntimeError("there is no session\nhint: call `aktis.init()` first")
    return found


def state(what: str) -> list[dict[str, Any]]:
    """Rows about something, of all nodes of the cluster; see `Runtime.state`."""
    from aktis import _nodes

    found = runtime()
    return found.state(what, _nodes.daemon_directory())


@cache
def remote(target: Callable[..., Any]) -> Any:
    """A function or class of ours as a remote one: made once, so that it is sent once in each session."""
    import aktis

    return aktis.remote(target)


def text_of(identity: Any) -> str:
    """An id as hexadecimal text, whether it is bytes, text, or an object with `hex()` (all kinds of ids)."""
    if isinstance(identity, str):
        return identity
    if hasattr(identity, "hex"):
        return str(identity.hex())
    raise TypeError(
        f"{identity!r} is no id\nhint: pass hexadecimal text, bytes, or an id such as `aktis.NodeID`"
    )


def start_thread(target: Callable[..., object], *args: Any) -> "Thread":
    """A daemon thread that runs `target(*args)` in the session of the calling thread."""
    from threading import Thread

    session = runtime()

    def run() -> None:
        session.enter()
        try:
            target(*args)
        finally:
            session.leave()

    thread = Thread(target=run, name=f"aktis-{target.__name__.strip('_')}", daemon=True)
    thread.start()
    return thread
