"""Checkpoints of actors: what is saved of an instance, and how it comes back.

A class says so with `__checkpoint__(self)`, which gives any value that can be pickled, and
`__restore__(self, value)`, which gets that value on an instance whose `__init__` was not called. Without them
the instance is saved as `pickle` does it: by `__getstate__` and `__setstate__`, or else all its attributes.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from aktis._engine import native

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000}

DIRECTORY = "AKTIS_CHECKPOINT_DIRECTORY"
"""The environment variable with the `checkpoint_directory` of actors that are created without one."""


def interval(name: str, value: Any) -> tuple[int, int]:
    """After how many calls, and after how many milliseconds, an actor takes a checkpoint; 0 for never."""
    if value is True:
        return 0, 0
    if isinstance(value, str):
        found = _DURATION.fullmatch(value)
        if found is None:
            raise TypeError(
                f"the option {name!r} must be a number of calls, or a time such as '5s', but is {value!r}\n"
                "hint: checkpoint=100, checkpoint='500ms', or checkpoint=True for those the actor asks for"
            )
        milliseconds = round(float(found[1]) * _MILLISECONDS[found[2]])
        if milliseconds < 1:
            raise ValueError(f"the option {name!r} must be at least '1ms', but is {value!r}")
        return 0, milliseconds
    from aktis import _options

    calls: int = _options.whole(1)(name, value)
    if calls >= 1 << 32:
        raise ValueError(f"the option {name!r} must be below 2**32, but is {calls}")
    return calls, 0


def wanted(cls: type, options: Mapping[str, Any], is_async: bool) -> tuple[int, int, str] | None:
    """How actors of a class remember their state; None if they do not."""
    if "checkpoint" not in options:
        if "checkpoint_directory" in options:
            raise ValueError(
                f"actors of {cls.__name__} have a checkpoint_directory and no checkpoint\n"
                "hint: checkpoint=100 saves an actor after every 100 calls"
            )
        return None
    if is_async or options.get("max_concurrency", 1) > 1 or options.get("concurrency_groups"):
        raise ValueError(
            f"actors of {cls.__name__} have checkpoints and run several calls at a time\n"
            "hint: calls are replayed in their order; use checkpoint without async methods, max_concurrency "
            "and concurrency_groups"
        )
    if options.get("max_restarts", 0) == 0:
        raise ValueError(
            f"actors of {cls.__name__} have checkpoints and no restarts\n"
            "hint: max_restarts=3 lets an actor live again after its process died"
        )
    own = [name for name in ("__checkpoint__", "__restore__") if hasattr(cls, name)]
    if len(own) == 1:
        missing = "__restore__" if own == ["__checkpoint__"] else "__checkpoint__"
        raise TypeError(
            f"{cls.__name__} has {own[0]} and no {missing}\nhint: a class has both of them, or none"
        )
    return (*options["checkpoint"], options.get("checkpoint_directory") or _usual_directory())


def _usual_directory() -> str:
    """The directory of actors that are created without one; empty for that of their node."""
    from aktis import _options

    directory = os.environ.get(DIRECTORY, "")
    return _options.directory(DIRECTORY, directory) if directory else ""


def save(instance: Any) -> bytes:
    """The state of an instance as bytes."""
    from aktis import _serialization

    own = getattr(type(instance), "__checkpoint__", None)
    return _serialization.dumps_whole(own(instance) if own is not None else instance.__getstate__())


def restore(cls: Any, saved: bytes) -> Any:
    """An instance with a state that was saved; its `__init__` is not called."""
    from aktis import _serialization, _worker

    made = cls.__new__(cls)
    state = _serialization.loads(saved)
    setter = getattr(cls, "__restore__", None) or getattr(cls, "__setstate__", None)
    if setter is not None:
        setter(made, state)
    else:
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        for name, value in {**(attributes or {}), **(slots or {})}.items():
            object.__setattr__(made, name, value)
    return _worker.set_instance(made)


def checkpoint() -> None:
    """Has the actor that runs this take a checkpoint when the current call is over, before it is answered."""
    native.checkpoint()
