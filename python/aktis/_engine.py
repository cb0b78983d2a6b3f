"""The one door to the native part: everything else imports what it needs from here.

A few things that references do in Python alone are added to their class here.
"""

import sys
from typing import TYPE_CHECKING, Any

try:
    from aktis import _native
except ImportError as error:  # pragma: no cover - needs a broken installation
    raise ImportError(
        f"the native part of aktis could not be loaded: {error}\n"
        "hint: install the wheel for this Python (3.11 or later), or run `maturin develop` in a checkout"
    ) from error

from aktis._native import (
    Actor,
    ActorCaller,
    Completion,
    Context,
    Export,
    Failure,
    MethodCaller,
    ObjectRef,
    Runtime,
    Signature,
    Stream,
    TaskCaller,
    current,
)

__all__ = [
    "Actor",
    "ActorCaller",
    "Completion",
    "Context",
    "Export",
    "Failure",
    "MethodCaller",
    "ObjectRef",
    "Runtime",
    "Signature",
    "Stream",
    "TaskCaller",
    "async_call",
    "context",
    "current",
    "native",
]

native = _native


def async_call() -> Completion | None:
    """The call of an asynchronous method that the calling code belongs to, if it does."""
    asynchronous = sys.modules.get("aktis._async")
    return asynchronous.call.get() if asynchronous is not None else None


def context() -> Context:
    """Where the calling code runs."""
    call = async_call()
    return call.context() if call is not None else _native.context()


def _install() -> None:
    """Gives the native part the functions it calls, and references what only Python can do."""
    from aktis import _hooks

    _native.set_hooks(_hooks)
    reference: Any = ObjectRef
    for name, function in (
        ("as_future", _hooks.as_future),
        ("task_id", _hooks.task_id),
        ("job_id", _hooks.job_id),
        ("__class_getitem__", classmethod(_hooks.class_getitem)),
    ):
        setattr(reference, name, function)


if not TYPE_CHECKING:
    _install()
