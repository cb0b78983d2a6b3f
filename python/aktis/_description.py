"""What a handle knows of its actor's class: plain values, which travel to where the class is unknown."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aktis import _signature

METHOD_OPTIONS = "__aktis_method_options__"
INVOCATION_DECORATOR = "__ray_invocation_decorator__"
UNPACKED_MAX = 1000


class Method(NamedTuple):
    """What a handle knows of a method."""

    name: str
    parameters: tuple[Any, ...]
    is_generator: bool
    is_async: bool
    options: dict[str, Any]
    decorator: bytes | None = None
    """A pickled function that is put around the calls of the method, on the caller's side."""


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


_own: type | None = None


def own() -> "Description | None":
    """The description of the actor that this process is; None if it is none."""
    from aktis import _runtime_env

    return None if _own is None else describe(_own, _runtime_env.applied().get("actor_options", {}))


def own_class() -> type | None:
    """The class of the actor that this process is; None if it is none."""
    return _own


def complete(cls: type) -> None:
    """Gives the class of the actor that this process becomes the methods that every actor has."""
    global _own
    _own = cls
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
            decorator = getattr(function, INVOCATION_DECORATOR, None)
            if decorator is not None:
                from aktis._serialization import dumps_whole

                decorator = dumps_whole(decorator)
            found[name] = Method(
                name,
                tuple(_signature.parameters(function, name, skip)),
                _signature.is_generator(function),
                _signature.is_async(function),
                options,
                decorator,
            )
    return found


def traits(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options of an actor class that its handles have to know."""
    return {
        "max_task_retries": options.get("max_task_retries", 0),
        "max_pending_calls": options.get("max_pending_calls", -1),
        "concurrency_groups": tuple(options.get("concurrency_groups", ())),
    }


def describe(cls: type, options: Mapping[str, Any]) -> Description:
    """What handles know of a class whose actors have these options."""
    methods = discover(cls)
    constructor = vars(cls).get("__init__")
    is_async = any(method.is_async for method in methods.values()) or _signature.is_async(constructor)
    name = _signature.short_name(cls.__qualname__)
    return Description(name, cls.__module__, methods, is_async, **traits(options))
