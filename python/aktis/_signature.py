"""The parameters of a function, as far as a call has to fit them: checked where the call is made.

`inspect` would do, but takes longer to import than all of Aktis; it is asked only about what is not a plain
function.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

VARARGS = 0x04
VARKEYWORDS = 0x08
GENERATOR = 0x20
COROUTINE = 0x80
ASYNC_GENERATOR = 0x200


class Parameters(NamedTuple):
    """What a function takes. A plain tuple of plain values, because it travels with actors' handles."""

    name: str
    positional: tuple[str, ...]
    positional_only: int
    required: int
    keyword_only: tuple[str, ...]
    keyword_required: tuple[str, ...]
    varargs: bool
    varkeywords: bool

    def bind(self, *args: Any, **kwargs: Any) -> None:
        """Raises TypeError if a call with these arguments would."""
        given = len(args)
        if given > len(self.positional) and not self.varargs:
            raise TypeError(
                f"{self.name}() got too many positional arguments: {given} instead of {len(self.positional)}"
            )
        filled = set(self.positional[:given])
        for name in kwargs:
            if name in self.positional[self.positional_only :]:
                if name in filled:
                    raise TypeError(f"{self.name}() got multiple values for argument {name!r}")
                filled.add(name)
            elif name not in self.keyword_only and not self.varkeywords:
                if name in self.positional:
                    raise TypeError(
                        f"{self.name}() got an unexpected keyword argument {name!r}: it is positional only"
                    )
                raise TypeError(f"{self.name}() got an unexpected keyword argument {name!r}")
        missing = [name for name in self.positional[given : self.required] if name not in filled]
        missing += [name for name in self.keyword_required if name not in kwargs]
        if missing:
            raise TypeError(f"{self.name}() is missing a required argument: {', '.join(map(repr, missing))}")

    def bounds(self) -> tuple[int, int]:
        """How many positional arguments fit at least and at most (-1: any number).

        Where a keyword is required no number fits, so that every call is looked at.
        """
        maximum = -1 if self.varargs else len(self.positional)
        minimum = UNREACHABLE if self.keyword_required else self.required
        return minimum, maximum


UNREACHABLE = 1 << 30
ANYTHING = Parameters("", (), 0, 0, (), (), True, True)


def parameters(function: Callable[..., Any], name: str, skip: int = 0) -> Parameters:
    """The parameters of a function, less the first `skip` (`self`)."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):
        return _inspected(function, name, skip)
    count: int = code.co_argcount
    names: tuple[str, ...] = code.co_varnames
    defaults = len(getattr(function, "__defaults__", None) or ())
    keyword_only = names[count : count + code.co_kwonlyargcount]
    keyword_defaults = getattr(function, "__kwdefaults__", None) or {}
    dropped = min(skip, count)
    return Parameters(
        name=name,
        positional=names[dropped:count],
        positional_only=max(code.co_posonlyargcount - dropped, 0),
        required=max(count - defaults - dropped, 0),
        keyword_only=keyword_only,
        keyword_required=tuple(key for key in keyword_only if key not in keyword_defaults),
        varargs=bool(code.co_flags & VARARGS),
        varkeywords=bool(code.co_flags & VARKEYWORDS),
    )


def _inspected(function: Callable[..., Any], name: str, skip: int) -> Parameters:
    import inspect

    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return ANYTHING._replace(name=name)
    kinds = inspect.Parameter
    in_place = [p for p in found if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)][skip:]
    keyword_only = [p for p in found if p.kind is kinds.KEYWORD_ONLY]
    return Parameters(
        name=name,
        positional=tuple(p.name for p in in_place),
        positional_only=sum(p.kind is kinds.POSITIONAL_ONLY for p in in_place),
        required=sum(p.default is p.empty for p in in_place),
        keyword_only=tuple(p.name for p in keyword_only),
        keyword_required=tuple(p.name for p in keyword_only if p.default is p.empty),
        varargs=any(p.kind is kinds.VAR_POSITIONAL for p in found),
        varkeywords=any(p.kind is kinds.VAR_KEYWORD for p in found),
    )


def short_name(qualified: str) -> str:
    """The name of a function or class without the functions around it."""
    return qualified.rpartition("<locals>.")[2]


def flags(function: object) -> int:
    """The flags of a function's code: whether it is a generator or asynchronous."""
    import functools

    while isinstance(function, (functools.partial, functools.partialmethod)):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return getattr(code, "co_flags", 0)


def is_generator(function: object) -> bool:
    """Whether calling the function gives a generator, synchronous or not."""
    return bool(flags(function) & (GENERATOR | ASYNC_GENERATOR))


def is_async(function: object) -> bool:
    """Whether the function is `async def`."""
    return bool(flags(function) & (COROUTINE | ASYNC_GENERATOR))
