"""Decorators that say how stable a name is. They mark; they change nothing about what they decorate.

    @PublicAPI(stability="beta")
    def shiny() -> None: ...

    @Deprecated(message="use `shiny` instead")
    def dull() -> None: ...

The mark can be read from the attribute `_annotated_type`, and a sentence about it is added to the docstring.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar, overload

__all__ = ["AnnotationType", "Deprecated", "DeveloperAPI", "PublicAPI", "is_annotated"]

Decorated = TypeVar("Decorated")

_STABILITIES = ("stable", "beta", "alpha")


class AnnotationType(Enum):
    """What a name was marked as."""

    PUBLIC_API = "PublicAPI"
    DEVELOPER_API = "DeveloperAPI"
    DEPRECATED = "Deprecated"
    UNKNOWN = "Unknown"


@overload
def PublicAPI(thing: Decorated, /) -> Decorated: ...
@overload
def PublicAPI(*, stability: str = ..., api_group: str = ...) -> Callable[[Decorated], Decorated]: ...
def PublicAPI(thing: Any = None, /, *, stability: str = "stable", api_group: str = "Others") -> Any:
    """Marks what end users may rely on. `stability` is "stable", "beta" or "alpha"."""
    if stability not in _STABILITIES:
        raise ValueError(f"`stability` is {stability!r}\nhint: use one of {', '.join(_STABILITIES)}")

    def mark(what: Decorated) -> Decorated:
        note = (
            "" if stability == "stable" else f"This API is in {stability} and may change before it is stable."
        )
        return _mark(what, AnnotationType.PUBLIC_API, note)

    return mark if thing is None else mark(thing)


@overload
def DeveloperAPI(thing: Decorated, /) -> Decorated: ...
@overload
def DeveloperAPI(**ignored: Any) -> Callable[[Decorated], Decorated]: ...
def DeveloperAPI(thing: Any = None, /, **ignored: Any) -> Any:
    """Marks what authors of libraries may use, and what may change between minor versions."""

    def mark(what: Decorated) -> Decorated:
        return _mark(
            what, AnnotationType.DEVELOPER_API, "This is for developers and may change between releases."
        )

    return mark if thing is None else mark(thing)


@overload
def Deprecated(thing: Decorated, /) -> Decorated: ...
@overload
def Deprecated(*, message: str = ..., warning: bool = ...) -> Callable[[Decorated], Decorated]: ...
def Deprecated(thing: Any = None, /, *, message: str = "", warning: bool = False) -> Any:
    """Marks what will be removed. `message` says what to use instead."""

    def mark(what: Decorated) -> Decorated:
        return _mark(what, AnnotationType.DEPRECATED, f"Deprecated. {message}".rstrip())

    return mark if thing is None else mark(thing)


def is_annotated(thing: object) -> bool:
    """Whether `thing` itself (not a base class of it) was marked."""
    name = getattr(thing, "__name__", None)
    return getattr(thing, "_annotated", None) == name is not None


def _mark(thing: Decorated, kind: AnnotationType, note: str) -> Decorated:
    try:
        if note:
            thing.__doc__ = f"{(thing.__doc__ or '').rstrip()}\n\n{note}\n".lstrip()
        thing._annotated = getattr(thing, "__name__", None)  # type: ignore[attr-defined]
        thing._annotated_type = kind  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        pass  # A property, a slot, or a builtin: it cannot carry the mark, and works all the same.
    return thing
