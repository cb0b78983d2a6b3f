"""`@remote`, on functions and classes, with and without options."""

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from aktis import _actor, _remote_function

if TYPE_CHECKING:
    from aktis._actor import ActorClass
    from aktis._remote_function import RemoteFunction, RemoteGenerator

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
Y = TypeVar("Y")


class WrongTargetError(TypeError, AssertionError):
    """Something that cannot be remote. Python's programs expect the one class, Ray's the other."""


class Decorator(Protocol):
    """What `remote(num_cpus=2)` is."""

    @overload
    def __call__(self, target: type[C], /) -> "ActorClass[C]": ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[P, Generator[Y, Any, Any]], /) -> "RemoteGenerator[P, Y]": ...
    @overload
    def __call__(self, target: Callable[P, Iterator[Y]], /) -> "RemoteGenerator[P, Y]": ...
    @overload
    def __call__(self, target: Callable[P, T], /) -> "RemoteFunction[P, T]": ...


@overload
def remote(target: type[C], /) -> "ActorClass[C]": ...  # type: ignore[overload-overlap]
@overload
def remote(target: Callable[P, Generator[Y, Any, Any]], /) -> "RemoteGenerator[P, Y]": ...
@overload
def remote(target: Callable[P, Iterator[Y]], /) -> "RemoteGenerator[P, Y]": ...
@overload
def remote(target: Callable[P, T], /) -> "RemoteFunction[P, T]": ...
@overload
def remote(**options: Any) -> Decorator: ...
def remote(*targets: Any, **options: Any) -> Any:
    """Makes a remote function of a function, and an actor class of a class.

    ```
    @aktis.remote
    def square(x): ...

    @aktis.remote(num_cpus=2)
    class Counter: ...
    ```
    """
    if len(targets) == 1 and not options:
        return _make(targets[0], {})
    if targets:
        raise WrongTargetError(
            "remote takes a function or a class, or options by keyword\n"
            "hint: @aktis.remote or @aktis.remote(num_cpus=2)"
        )
    if not options:
        raise WrongTargetError("remote() was given nothing\nhint: @aktis.remote or @aktis.remote(num_cpus=2)")
    _check_early(options)

    def decorate(target: Any) -> Any:
        return _make(target, options)

    return decorate


def _make(target: Any, options: dict[str, Any]) -> Any:
    if isinstance(target, type):
        return _actor.make(target, options)
    if _remote_function.is_function(target):
        return _remote_function.make(target, options)
    if isinstance(target, (_remote_function.RemoteFunction, _actor.ActorClass)):
        raise TypeError(f"{target!r} is remote already\nhint: .options(...) gives it other options")
    raise WrongTargetError(
        f"remote takes a function or a class, not {target!r:.100} ({type(target).__name__})\n"
        "hint: a callable object can be called in a function: remote(lambda *args: target(*args))"
    )


def _check_early(options: dict[str, Any]) -> None:
    """Options that fit neither tasks nor actors are refused before there is a function or class."""
    from aktis import _options

    known = {**_options.TASK, **_options.ACTOR}
    _options.check(options, known, "tasks and actors")
