"""`get`, `put`, `wait`, `cancel`, `kill`, `explain`: what is done with references and handles.

The native part checks what is in a list while it reads it; here is checked only what is cheap, and what it
gets wrong types for is looked at again, to say what is wrong.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar, overload

from aktis._actor import ActorHandle
from aktis._engine import ObjectRef, native
from aktis._generator import ObjectRefGenerator
from aktis._rest import RestList, rest_list

T = TypeVar("T")

SECONDS_MAX = 1e9  # thirty years are as good as no limit
FETCHED_MAX = 256
"""Of a list up to this length, programs written for Ray have all values fetched, whichever they wait for."""

_get = native.get
_wait = native.wait


@overload
def get(object_refs: ObjectRef[T], *, timeout: float | None = None) -> T: ...
@overload
def get(object_refs: Sequence[ObjectRef[T]], *, timeout: float | None = None) -> list[T]: ...
def get(object_refs: Any, *, timeout: float | None = None) -> Any:
    """The value of a reference, or the values of a list of them; waits for them.

    Raises what the task raised, as soon as one of them failed; `GetTimeoutError` after `timeout` seconds.
    """
    if timeout is not None:
        timeout = _checked_timeout(timeout)
    if type(object_refs) is ObjectRef or isinstance(object_refs, list):
        if type(object_refs) is RestList:
            RestList._fill(object_refs)
        return _get(object_refs, timeout)
    _refuse_get(object_refs)


def put(value: T, *, _owner: Any = None, _tensor_transport: Any = None) -> ObjectRef[T]:
    """Makes an object of a value, which tasks and actors can share without copies."""
    if type(value) is ObjectRef:
        raise TypeError(
            "an ObjectRef cannot be put: it names an object already\n"
            "hint: put([ref]) makes an object with a reference inside"
        )
    return native.put(value)


def wait(
    object_refs: Sequence[ObjectRef[T]],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """Waits until `num_returns` of the references are ready, or `timeout` seconds; gives those and the rest.

    Both lists keep the order of the input. Generators may stand among the references: they are ready when
    their next item is. A value that is ready may be on another node; with `fetch_local` it is on its way to
    this one when `wait` returns.
    """
    if not isinstance(object_refs, list):
        _refuse_wait(object_refs)
    if timeout is not None:
        timeout = _checked_timeout(timeout)
    count = len(object_refs)
    if count == 0:
        return [], []
    if type(num_returns) is not int:
        raise TypeError(f"num_returns is a whole number, not {num_returns!r}")
    if num_returns <= 0:
        raise ValueError(f"num_returns must be at least 1, not {num_returns}")
    if num_returns > count:
        raise ValueError(f"num_returns is {num_returns}, but there are only {count} references to wait for")
    # Reading the environment costs as much as all the rest, and only programs for Ray need it.
    if (
        fetch_local
        and count <= FETCHED_MAX
        and "aktis.compat" in sys.modules
        and os.environ.get("AKTIS_COMPAT") == "1"
    ):
        native.fetch(object_refs)
    if type(object_refs) is RestList:
        found = object_refs._rest.wait(num_returns, timeout, bool(fetch_local))
        if found is not None:
            ready, rest = found
            return ready, rest_list(rest) if isinstance(rest, native.Rest) else rest
        RestList._fill(object_refs)
    try:
        ready, rest = _wait(object_refs, num_returns, timeout, bool(fetch_local))
        return ready, rest_list(rest) if isinstance(rest, native.Rest) else rest
    except TypeError:
        ready, rest = _wait_mixed(object_refs, num_returns, timeout)
        if fetch_local and (fetched := [item for item in ready if isinstance(item, ObjectRef)]):
            _wait(fetched, len(fetched), 0, True)
        return ready, rest


def _checked_timeout(timeout: Any) -> float | None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"a timeout is a number of seconds, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"a timeout must not be negative, but is {timeout}")
    return timeout if timeout < SECONDS_MAX else None


def _refuse_get(value: object) -> NoReturn:
    if isinstance(value, ObjectRefGenerator):
        raise ValueError(
            "get() takes references, not a generator of them\nhint: for ref in generator: get(ref)"
        )
    raise ValueError(
        f"get() takes an ObjectRef or a list of them, not {value!r:.80} ({type(value).__name__})\n"
        "hint: call the function with .remote() to get a reference"
    )


def _refuse_wait(value: object) -> NoReturn:
    kind = "a single ObjectRef" if isinstance(value, ObjectRef) else f"{type(value).__name__}"
    raise TypeError(f"wait() takes a list of references, not {kind}\nhint: wait([ref])")


def _wait_mixed(waitables: list[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
    """The same with generators among the references; each is asked again when its callback says so."""
    for item in waitables:
        if not isinstance(item, (ObjectRef, ObjectRefGenerator)):
            raise TypeError(
                f"wait() takes a list of references, but there is {item!r:.80} ({type(item).__name__}) in it"
            )
    if len({id(item) if isinstance(item, ObjectRefGenerator) else item for item in waitables}) < len(
        waitables
    ):
        raise ValueError("a reference comes twice in the list to wait for")
    import threading
    import time

    deadline = None if timeout is None else time.monotonic() + timeout
    changed = threading.Event()

    def again(*_: Any) -> None:
        changed.set()

    for item in waitables:
        if isinstance(item, ObjectRef) and not item.is_ready():
            item.add_done_callback(again)
    while True:
        changed.clear()
        ready = [
            number
            for number, item in enumerate(waitables)
            if (item.peek(again) if isinstance(item, ObjectRefGenerator) else item.is_ready())
        ]
        left = None if deadline is None else deadline - time.monotonic()
        if len(ready) >= num_returns or (left is not None and left <= 0):
            break
        changed.wait(left)
    chosen = set(ready[:num_returns])
    return (
        [item for number, item in enumerate(waitables) if number in chosen],
        [item for number, item in enumerate(waitables) if number not in chosen],
    )


def cancel(object_ref: Any, *, force: bool = False, recursive: bool = True) -> None:
    """Cancels the task or the actor's call that makes an object; `get` raises `TaskCancelledError` then.

    A running task gets a KeyboardInterrupt, a coroutine a CancelledError; `force` ends the task's worker.
    What is finished is not affected. Any process that has the reference may cancel. `force` for a call of an
    actor raises ValueError.
    """
    if isinstance(object_ref, ObjectRefGenerator):
        object_ref.cancel(force, recursive)
        return
    if not isinstance(object_ref, ObjectRef):
        raise TypeError(
            f"cancel() takes an ObjectRef or a generator, not {object_ref!r:.80}\nhint: kill() ends actors"
        )
    if not object_ref.is_ready():
        object_ref.add_done_callback(_note_cancelled)
    native.cancel(object_ref, force, recursive)


def _note_cancelled(object_ref: "ObjectRef[Any]") -> None:
    """Lists of tasks tell of a cancelled task also if nobody asks for its value."""
    with suppress(Exception):
        native.get(object_ref, 0)


def kill(actor: Any, *, no_restart: bool = True) -> None:
    """Ends an actor at once; calls that run or wait fail. With `no_restart=False` it may start again."""
    if not isinstance(actor, ActorHandle):
        raise ValueError(
            f"kill() takes the handle of an actor, not {actor!r:.80} ({type(actor).__name__})\n"
            "hint: cancel() ends tasks"
        )
    actor._actor.kill(not no_restart)


def explain(what: Any) -> str:
    """Says why a task, call, object or actor has not run, what it waits for, or where it is."""
    if isinstance(what, ActorHandle):
        what = what._actor
    if isinstance(what, ObjectRefGenerator):
        what = native.object_from_id(what.task_id().binary())
    return native.explain(what)
