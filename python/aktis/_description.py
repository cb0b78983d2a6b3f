"""What a handle knows of its actor's class: plain values, which travel to where the class is unknown."""

from collections.abc import Callable
from typing import Any, NamedTuple

from aktis import _signature

METHOD_OPTIONS = "__aktis_method_options__"
UNPACKED_MAX = 1000


class Method(NamedTuple):
    """What a handle knows of a method."""

    name: str
    parameters: tuple[Any, ...]
    is_generator: bool
    is_async: bool
    options: dict[str, Any]


class Description(NamedTuple):
    """What a handle knows of its actor's class; travels as `details`."""

    class_name: str
    module: str
    methods: dict[str, Method]
    is_async: bool
    max_task_retries: int = 0
    max_pending_calls: int = -1
    concurrency_groups: tuple[str, ...] = ()

    def pack(self) -> bytes:
        """The description as bytes: plain tuples, pickled."""
        from aktis._serialization import dumps_whole

        methods = {name: tuple(method) for name, method in self.methods.items()}
        return dumps_whole((*self[:2], methods, *self[3:]))

    @staticmethod
    def unpack(details: bytes) -> "Description":
        """What `pack` packed; each kind is unpacked once in a process."""
        found = _unpacked.get(details)
        if found is None:
            import pickle

            class_name, module, methods, *rest = pickle.loads(details)
            found = Description(class_name, module, {n: Method(*m) for n, m in methods.items()}, *rest)
            if len(_unpacked) < UNPACKED_MAX:
                _unpacked[details] = found
        return found


_unpacked: dict[bytes, Description] = {}

# --- methods that every actor has -------------------------------------------------------------


def _ready(instance: object) -> bool:
    return True


def _terminate(instance: object) -> None:
    from aktis._actor import exit_actor

    exit_actor()


def _call(instance: object, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(instance, *args, **kwargs)


EVERY_ACTORS: dict[str, Callable[..., Any]] = {
    "__ray_ready__": _ready,
    "__aktis_ready__": _ready,
    "__ray_terminate__": _terminate,
    "__aktis_terminate__": _terminate,
    "__ray_call__": _call,
    "__aktis_call__": _call,
}


def complete(cls: type) -> None:
    """Gives a class the methods that every actor has. For the worker."""
    for name, function in EVERY_ACTORS.items():
        if not hasattr(cls, name):
            try:
                setattr(cls, name, function)
            except (TypeError, AttributeError):
                return  # a class that cannot be changed has to do without


def discover(cls: type) -> dict[str, Method]:
    """The methods of a class, inherited ones included."""
    found: dict[str, Method] = {}
    for base in reversed(cls.__mro__):
        if base is object:
            continue
        for name, member in vars(base).items():
            found.pop(name, None)
            function = getattr(member, "__func__", member)
            if not callable(function) or isinstance(function, type) or name in ("__init__", "__new__"):
                continue
            if not (hasattr(function, "__code__") or hasattr(function, "__wrapped__")):
                continue
            skip = 0 if isinstance(member, staticmethod) else 1
            options = getattr(function, METHOD_OPTIONS, {})
            found[name] = Method(
                name,
                tuple(_signature.parameters(function, name, skip)),
                _signature.is_generator(function),
                _signature.is_async(function),
                options,
            )
    return found
