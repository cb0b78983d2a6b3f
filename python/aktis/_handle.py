"""Handles of actors, and their methods.

1. A handle holds the native actor and a description of its class, and both travel.
2. `handle.method` makes the method at its first use and keeps it as an attribute. Methods hold the native
   actor and not the handle: no cycles, so that an actor ends when its last handle goes, and not at the next
   garbage collection.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from aktis import _options, _signature
from aktis._description import EVERY_ACTORS, Description, Method, own
from aktis._engine import Actor, MethodCaller, ObjectRef, Signature, Stream, native

if TYPE_CHECKING:
    from aktis._ids import ActorID

C = TypeVar("C")


_EVERY_HANDLES = ("__ray_ready__", "__ray_call__", "__ray_terminate__")


def signature(parameters: _signature.Parameters) -> Signature:
    """What the native part checks arguments with."""
    return Signature(*parameters.bounds(), parameters.bind)


class ActorHandle(Generic[C]):
    """An actor as its callers see it: `handle.method.remote(...)`. Lives on while handles of it do."""

    def __init__(self, actor: Actor, description: Description, details: bytes) -> None:
        self._actor = actor
        self._description = description
        self._details = details

    def __getattr__(self, name: str) -> "ActorMethod":
        description: Description = self.__dict__["_description"]
        known = description.methods.get(name)
        if known is None:
            if name not in EVERY_ACTORS:
                raise AttributeError(_missing(name, description))
            function = EVERY_ACTORS[name]
            options = {"read_only": True} if name.endswith("_ready__") else {}
            known = Method(name, tuple(_signature.parameters(function, name, 1)), False, False, options)
        made = ActorMethod(self.__dict__["_actor"], description, known, known.options)
        self.__dict__[name] = made
        return made

    @property
    def _actor_id(self) -> "ActorID":
        from aktis._ids import ActorID

        return ActorID(self._actor.binary())

    _ray_actor_id = _actor_id

    @property
    def _method_names(self) -> list[str]:
        return sorted(self._description.methods)

    def __dir__(self) -> list[str]:
        return ["__init__", *self._description.methods, *_EVERY_HANDLES]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor.binary() == self._actor.binary()

    def __hash__(self) -> int:
        return hash(self._actor.binary())

    def __reduce__(self) -> Any:
        return handle_again, (self._actor, self._details)

    def __repr__(self) -> str:
        return f"Actor({self._description.class_name}, {self._actor.hex()})"


class ActorMethod:
    """A method of an actor; `remote` calls it."""

    __slots__ = ("__weakref__", "_actor", "_description", "_method", "_options", "remote")
    remote: Callable[..., Any]

    def __init__(
        self, actor: Actor, description: Description, known: Method, options: _options.Options
    ) -> None:
        self._actor = actor
        self._description = description
        self._method = known
        self._options = options
        returns = _options.return_number(options, known.is_generator)
        group = options.get("concurrency_group")
        if group is not None and group not in description.concurrency_groups:
            raise ValueError(f"the actor class {description.class_name!r} has no concurrency group {group!r}")
        caller: Callable[..., Any] = MethodCaller(
            actor,
            known.name,
            signature(_signature.Parameters(*known.parameters)),
            name=options.get("name") or f"{description.class_name}.{known.name}",
            num_returns=returns,
            max_task_retries=options.get("max_task_retries", description.max_task_retries),
            retry_exceptions=_options.retries(options),
            concurrency_group=group,
            stream_ahead=_options.stream_ahead(options),
            is_async=description.is_async,
            deadline=options.get("deadline"),
            shown=options.get("name", ""),
            read_only=options.get("read_only", False),
        )
        if description.max_pending_calls > 0 and returns > 0:
            caller = _limited(caller, actor.binary(), description.max_pending_calls)
        self.remote = _streaming(caller) if returns < 0 else caller
        if known.decorator is not None:
            self.remote = _decorated(self.remote, known)

    def _remote(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """`options(**options).remote(*args, **kwargs)`, under the name that old programs use."""
        return (self.options(**options) if options else self).remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """A call in a graph of calls, which `execute()` runs; see `aktis.dag`."""
        from aktis.dag import ClassMethodNode

        return ClassMethodNode(self, args, kwargs)

    def __dir__(self) -> list[str]:
        return [*(name for name in super().__dir__() if name.startswith("_")), "remote", "options", "bind"]

    def options(self, **options: Any) -> "ActorMethod":
        """The same method with other options."""
        merged = _options.merge(self._options, options, _options.METHOD, "methods")
        return ActorMethod(self._actor, self._description, self._method, merged)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self._method.name
        raise TypeError(
            f"the method {name!r} of an actor cannot be called directly\nhint: use handle.{name}.remote(...)"
        )

    def __reduce__(self) -> Any:
        return _method_again, (self._actor, self._description.pack(), self._method.name, self._options)

    def __repr__(self) -> str:
        return f"ActorMethod({self._description.class_name}.{self._method.name}, {self._actor.hex()})"


def _decorated(remote: Callable[..., Any], known: Method) -> Callable[..., Any]:
    """What a method's decorator of invocations makes of its calls; it is given the arguments as they are."""
    import pickle

    decorator = pickle.loads(known.decorator or b"")

    def invoke(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return remote(*args, **kwargs)

    wrapped = decorator(invoke)
    return lambda *args, **kwargs: wrapped(args, kwargs)


def handle_again(actor: Actor, details: bytes) -> ActorHandle[Any]:
    """The handle of an actor, from what travels."""
    return ActorHandle(actor, Description.unpack(details), details)


def _method_again(actor: Actor, details: bytes, name: str, options: _options.Options) -> ActorMethod:
    description = Description.unpack(details)
    return ActorMethod(actor, description, description.methods[name], options)


class _Pending:
    """Calls of one actor that this process has submitted and that are not done."""

    def __init__(self) -> None:
        self.submitting = 0
        self.references: list[ObjectRef[Any]] = []

    def count(self, limit: int) -> int:
        """How many there are. A call may be done before its callback has run, so references are asked."""
        if self.submitting + len(self.references) >= limit:
            self.references = [reference for reference in self.references if not reference.is_ready()]
        return self.submitting + len(self.references)


_pending: dict[bytes, _Pending] = {}
_pending_lock = threading.Lock()


def _limited(caller: Callable[..., Any], actor: bytes, limit: int) -> Callable[..., Any]:
    """Refuses calls while as many of this process as the actor allows are not done."""

    def begin() -> None:
        with _pending_lock:
            pending = _pending.setdefault(actor, _Pending())
            if pending.count(limit) >= limit:
                from aktis.exceptions import PendingCallsLimitExceeded

                raise PendingCallsLimitExceeded(
                    f"{limit} calls of the actor {actor.hex()} are not done, which is its max_pending_calls\n"
                    "hint: get() or wait() for some of them first"
                )
            pending.submitting += 1

    def submitted(reference: "ObjectRef[Any] | None") -> None:
        with _pending_lock:
            _pending[actor].submitting -= 1
            if reference is not None:
                _pending[actor].references.append(reference)

    def done(reference: "ObjectRef[Any]") -> None:
        with _pending_lock:
            pending = _pending.get(actor)
            if pending is None:
                return
            pending.references = [other for other in pending.references if other != reference]
            if not pending.references and not pending.submitting:
                del _pending[actor]

    def remote(*args: Any, **kwargs: Any) -> Any:
        begin()
        try:
            result = caller(*args, **kwargs)
        except BaseException:
            submitted(None)
            raise
        first = result[0] if isinstance(result, list) else result
        submitted(first)
        first.add_done_callback(done)
        return result

    return remote


def _streaming(caller: Callable[..., Any]) -> Callable[..., Any]:
    def remote(*args: Any, **kwargs: Any) -> Any:
        from aktis._generator import ObjectRefGenerator

        result = caller(*args, **kwargs)
        return ObjectRefGenerator(result) if isinstance(result, Stream) else result

    return remote


def _missing(name: str, description: Description) -> str:
    text = f"the actor class {description.class_name!r} has no method {name!r}"
    if name.startswith("__"):
        return text
    import difflib

    near = difflib.get_close_matches(name, description.methods, n=3)
    return f"{text}\nhint: did you mean {', '.join(near)}?" if near else text


def current_handle(actor: bytes) -> ActorHandle[Any]:
    """A handle of the actor that this process is."""
    description = own()
    if description is None:
        raise RuntimeError("the actor is not constructed yet")
    load: Callable[[None, bytes], Actor] = getattr(native, "load_actor")  # noqa: B009
    return ActorHandle(load(None, actor), description, description.pack())
