"""Actor classes: what `@remote` makes of a class; and actors by their names."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NoReturn, TypeVar

from aktis import _checkpoint, _options, _runtime_env, _signature
from aktis._description import METHOD_OPTIONS, Description, describe, traits
from aktis._engine import Actor, ActorCaller, Export, ObjectRef, Signature, native
from aktis._handle import ActorHandle, ActorMethod, handle_again, signature
from aktis._remote_function import captured
from aktis._signature import short_name

__all__ = ["ActorClass", "ActorHandle", "ActorMethod", "exit_actor", "get_actor", "method"]

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])


def _placed_when_ready(actor: Actor, unready: "list[ObjectRef[Any]]") -> Actor:
    """The actor, which takes its resources once all of these are ready: the tasks that make them may need the
    same ones."""
    left = [*unready]

    def on_ready(ref: "ObjectRef[Any]") -> None:
        left.remove(ref)
        if not left:
            actor.begin()

    for ref in unready:
        ref.add_done_callback(on_ready)
    return actor


class ActorClass(Generic[C]):
    """A class whose instances live in workers: `A.remote(...)` gives a handle at once."""

    def __init__(self, cls: type[C], options: Any, shared: "_Shared | None" = None) -> None:
        if not isinstance(options, dict):  # a class statement with an actor class among its bases
            from aktis.exceptions import ActorClassInheritanceException

            raise ActorClassInheritanceException(
                "Inheriting from actor classes is not currently supported.\n"
                f"{cls!r} cannot inherit from an actor class\n"
                "hint: keep the plain class, inherit from that, and decorate both"
            )
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__
        self.__wrapped__ = cls
        self._class = cls
        self._options = options
        self._shared = shared or _Shared(cls)
        self._details: bytes | None = None
        self._caller: ActorCaller | None = None
        _options.group(options, _options.resources(options, 1.0))

    @cached_property
    def _description(self) -> Description:
        return self._shared.description._replace(**traits(self._options))

    def remote(self, *args: Any, **kwargs: Any) -> "ActorHandle[C]":
        """Creates an actor; raises TypeError if the arguments do not fit its constructor."""
        if "name" in self._options:
            return self._named(args, kwargs)
        if self._caller is None:
            self._caller = self._make_caller(None)
        actor = _placed_when_ready(*self._caller(*args, **kwargs))
        return ActorHandle(actor, self._description, self._packed())

    def _remote(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> "ActorHandle[C]":
        """`options(**options).remote(*args, **kwargs)`, under the name that old programs use."""
        return (self.options(**options) if options else self).remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """An actor in a graph of calls, which `execute()` creates; see `aktis.dag`."""
        from aktis.dag import ClassNode

        return ClassNode(self, args, kwargs)

    def __dir__(self) -> list[str]:
        private = [name for name in super().__dir__() if name.startswith("_")]
        return [*private, *self._shared.description.methods, "remote", "options", "bind"]

    def options(self, **options: Any) -> "ActorClass[C]":
        """The same class with other options for its actors."""
        merged = _options.merge(self._options, options, _options.ACTOR, "actors")
        return type(self)(self._class, merged, self._shared)._with_groups()

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "ActorHandle[C]":
        from aktis import _session

        runtime = _session.ensure()
        full = full_name(self._options.get("namespace") or _session.namespace(), self._options["name"])
        existing = self._options.get("get_if_exists", False)
        while True:
            found = runtime.find_actor(full) if existing else None
            if found is not None:
                return ActorHandle(found[0], Description.unpack(found[1]), found[1])
            try:
                actor = _placed_when_ready(*self._make_caller(full)(*args, **kwargs))
            except ValueError as error:
                if not existing or runtime.find_actor(full) is None:
                    raise _name_taken(error, self._options) from None
                continue  # another one was faster
            return ActorHandle(actor, self._description, self._packed())

    def _packed(self) -> bytes:
        if self._details is None:
            self._details = self._description.pack()
        return self._details

    def _make_caller(self, full: str | None) -> ActorCaller:
        options = self._options
        refusal = _runtime_env.refusal(options.get("runtime_env") or {})
        if refusal is not None:
            from aktis.exceptions import RuntimeEnvSetupError

            raise RuntimeEnvSetupError(refusal)
        _runtime_env.begin_packages(options.get("runtime_env") or {})
        self._check_node()
        self._check_groups()
        shared = self._shared
        # Without a number of CPUs an actor needs one to be placed and holds none; with it, it holds what it
        # says.
        held = _options.resources(options, 0.0)
        placement = _options.resources(options, 1.0)
        _options.refuse_fractions(placement)
        if "object_store_memory" in options:
            import warnings

            warnings.warn(
                "Setting 'object_store_memory' for actors is deprecated: it has no effect",
                DeprecationWarning,
                stacklevel=4,
            )
        group = _options.group(options, placement)
        more = captured(options, group)
        folders = _runtime_env.folders(options.get("runtime_env") or {})
        if folders:
            more["folders"] = folders
        if full is not None:
            more["actor_name"] = full
        own = {name: options[name] for name in traits({}) if name in options}
        if own:
            more["actor_options"] = own  # for handles that the actor makes of itself
        default = _options.ASYNC_CONCURRENCY_DEFAULT if shared.description.is_async else 1
        return ActorCaller(
            shared.export,
            shared.constructor,
            type_name=shared.description.class_name,
            name=full,
            details=self._packed(),
            resources=held,
            placement=placement,
            environment=_runtime_env.text(options.get("runtime_env"), options.get("num_cpus"), more),
            detached=options.get("lifetime") == "detached",
            ends_with_creator=os.environ.get("AKTIS_COMPAT") == "1",
            max_restarts=options.get("max_restarts", 0),
            max_task_retries=options.get("max_task_retries", 0),
            max_concurrency=options.get("max_concurrency", default),
            concurrency_groups=list(options.get("concurrency_groups", {}).items()),
            is_async=shared.description.is_async,
            group=group,
            strategy=_options.placement(options, fall_back=True),
            priority=options.get("priority", 0),
            checkpoint=_checkpoint.wanted(self._class, options, shared.description.is_async),
        )

    def _with_groups(self) -> "ActorClass[C]":
        """Itself, its concurrency groups checked if it names some."""
        if "concurrency_groups" in self._options:
            self._check_groups()
        return self

    def _check_groups(self) -> None:
        missing = sorted(self._shared.groups - set(self._options.get("concurrency_groups", ())))
        if missing:
            raise ValueError(
                f"methods of {self.__name__} are in concurrency groups that it lacks: {', '.join(missing)}\n"
                "hint: name them in the class's option concurrency_groups={...}"
            )

    def _check_node(self) -> None:
        if getattr(self._options.get("scheduling_strategy"), "node_id", None) is None:
            return
        from aktis import _session
        from aktis.exceptions import ActorUnschedulableError

        _session.ensure()
        missing = _options.wants_missing_node(self._options, _options.resources(self._options, 1.0))
        if missing is not None:
            raise ActorUnschedulableError(
                f"{_options.UNSCHEDULABLE} actor\nthe actor insists on the node {missing}\n"
                "hint: soft=True lets it live elsewhere; aktis.nodes() lists the nodes"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"the actor class has no attribute {name!r}")
        return getattr(self._class, name)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actors cannot be instantiated directly. {self.__name__!r} is an actor class\n"
            f"hint: {self.__name__}.remote(...) creates one, {self.__name__}.__wrapped__(...) a plain object"
        )

    def __reduce__(self) -> Any:
        return _class_again, (self._class, self._options, self._shared.export.origin_for_copy())

    def __repr__(self) -> str:
        return f"ActorClass({self.__qualname__})"


class _Shared:
    """What all variants of one actor class share: its export and what is known of its methods.

    The class is looked at when that is asked for. One that refers to itself is unpickled before it has its
    methods.
    """

    def __init__(self, cls: type, origin: tuple[int, int] | None = None) -> None:
        self._class = cls
        name = self._name = short_name(cls.__qualname__)

        def pickled() -> bytes:
            from aktis._serialization import dump_export

            return dump_export(cls, "class", name)

        self.export = Export(name, pickled, cls, origin)

    @cached_property
    def constructor(self) -> Signature:
        return signature(_constructor(self._class, self._name))

    @cached_property
    def description(self) -> Description:
        return describe(self._class, {})

    @cached_property
    def groups(self) -> set[str]:
        """The concurrency groups that its methods name."""
        options = [method.options for method in self.description.methods.values()]
        return {each["concurrency_group"] for each in options if "concurrency_group" in each}


def _name_taken(error: ValueError, options: Mapping[str, Any]) -> ValueError:
    """Ray's sentence first, if it is the name that is taken; programs match on it."""
    from aktis import _session

    if "there is an actor named" not in str(error) and "is taken" not in str(error):
        return error
    namespace = options.get("namespace") or _session.namespace()
    from aktis.exceptions import ActorAlreadyExistsError

    told = f"The name {options['name']} (namespace={namespace}) is already taken"
    return ActorAlreadyExistsError(f"{told}\n{error}")


def make(cls: type[C], options: Mapping[str, Any]) -> ActorClass[C]:
    """An actor class, its options checked."""
    return ActorClass(cls, _options.merge({}, options, _options.ACTOR, "actors"))._with_groups()


def _constructor(cls: type, name: str) -> _signature.Parameters:
    for base in cls.__mro__:
        function = vars(base).get("__init__")
        if function is not None and base is not object:
            return _signature.parameters(function, name, 1)
        function = vars(base).get("__new__")
        if function is not None and base is not object:
            return _signature.parameters(getattr(function, "__func__", function), name, 1)
    return _signature.Parameters(name, (), 0, 0, (), (), False, False)


def _class_again(
    cls: type, options: _options.Options, origin: tuple[int, int] | None = None
) -> ActorClass[Any]:
    return ActorClass(cls, options, _Shared(cls, origin))


def method(*targets: Any, **options: Any) -> Any:
    """Sets options of one method of an actor: `@aktis.method(num_returns=2)`; without options it changes
    nothing."""
    if len(targets) == 1 and callable(targets[0]) and not options:
        return targets[0]
    if targets or not options:
        raise TypeError("method takes options by keyword\nhint: @aktis.method(num_returns=2)")
    checked = _options.check(options, _options.METHOD, "methods")

    def decorate(function: F) -> F:
        setattr(function, METHOD_OPTIONS, checked)
        return function

    return decorate


# --- names ------------------------------------------------------------------------------------


def full_name(namespace: str, name: str) -> str:
    """An actor's name as the engine knows it: names are unique within a namespace."""
    return f"{namespace.replace('%', '%25').replace('/', '%2F')}/{name}"


def split_name(full: str) -> tuple[str, str]:
    """The namespace and the name that `full_name` was given."""
    namespace, _, name = full.partition("/")
    return namespace.replace("%2F", "/").replace("%25", "%"), name


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """The actor with this name; ValueError if there is none."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an actor is a string, not {name!r}")
    if not name:
        raise ValueError("the name of an actor is not empty")
    if namespace is not None:
        _options.text("namespace", namespace)
    from aktis import _session

    runtime = _session.ensure()
    wanted = namespace or _session.namespace()
    found = runtime.find_actor(full_name(wanted, name))
    if found is None:
        from aktis.exceptions import ActorHandleNotFoundError

        raise ActorHandleNotFoundError(
            f"Failed to look up actor with name '{name}'\n"
            f"there is no actor with the name {name!r} in the namespace {wanted!r}\n"
            "hint: it may have ended, or live in another namespace; aktis.util.list_named_actors() lists them"
        )
    return handle_again(*found)


class ActorExit(SystemExit):
    """Unwinds the method that called `exit_actor`."""


def exit_actor() -> NoReturn:
    """Ends the actor that the calling code runs in, for good; what called it sees an error."""
    from aktis import _engine

    runtime = _engine.current()
    actor = None if runtime is None else _engine.context().actor_id
    if actor is None:
        raise TypeError(
            "exit_actor API is called on a non-actor worker\n"
            "exit_actor() was called outside of an actor\nhint: call it in a method of an actor"
        )
    call = _engine.async_call()
    asynchronous = sys.modules.get("aktis._async")
    if asynchronous is not None and not asynchronous.is_in_call():
        # A coroutine that is no call has nothing to end with it: the actor calls its own end.
        from aktis._handle import current_handle

        current_handle(actor).__ray_terminate__.remote()
    elif call is not None:
        call.exits()
    else:
        native.exit_actor()
    raise ActorExit(0)
