"""Actors: what `@remote` makes of a class, handles, and methods.

1. A handle holds the native actor and a description of its class. The description is plain values, so that a
   handle can travel to a process that has never seen the class.
2. `handle.method` makes the method at its first use and keeps it as an attribute. Methods hold the native
   actor and not the handle: no cycles, so that an actor ends when its last handle goes, and not at the next
   garbage collection.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from aktis import _options, _runtime_env, _signature
from aktis._engine import Actor, ActorCaller, Export, MethodCaller, Signature, Stream, native
from aktis._remote_function import captured, short_name

if TYPE_CHECKING:
    from aktis._ids import ActorID

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])

METHOD_OPTIONS = "__aktis_method_options__"


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
    max_task_retries: int

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


UNPACKED_MAX = 1000
_unpacked: dict[bytes, Description] = {}

# --- methods that every actor has -------------------------------------------------------------


def _ready(instance: object) -> bool:
    return True


def _terminate(instance: object) -> None:
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


# --- classes ----------------------------------------------------------------------------------


class ActorClass(Generic[C]):
    """A class whose instances live in workers: `A.remote(...)` gives a handle at once."""

    def __init__(self, cls: type[C], options: Any, shared: "_Shared | None" = None) -> None:
        if not isinstance(options, dict):  # a class statement with an actor class among its bases
            from aktis.exceptions import ActorClassInheritanceException

            raise ActorClassInheritanceException(
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
        if (
            self._shared.groups - set(options.get("concurrency_groups", {}))
            and "concurrency_groups" in options
        ):
            missing = sorted(self._shared.groups - set(options["concurrency_groups"]))
            raise ValueError(f"methods of {cls.__name__} are in concurrency groups that it lacks: {missing}")
        _options.group(options, _options.resources(options, 1.0))

    def remote(self, *args: Any, **kwargs: Any) -> "ActorHandle[C]":
        """Creates an actor; raises TypeError if the arguments do not fit its constructor."""
        if "name" in self._options:
            return self._named(args, kwargs)
        if self._caller is None:
            self._caller = self._make_caller(None)
        return ActorHandle(self._caller(*args, **kwargs), self._description, self._packed())

    def options(self, **options: Any) -> "ActorClass[C]":
        """The same class with other options for its actors."""
        merged = _options.merge(self._options, options, _options.ACTOR, "actors")
        return type(self)(self._class, merged, self._shared)

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
                actor = self._make_caller(full)(*args, **kwargs)
            except ValueError:
                if not existing or runtime.find_actor(full) is None:
                    raise
                continue  # another one was faster
            return ActorHandle(actor, self._description, self._packed())

    @property
    def _description(self) -> Description:
        retries = self._options.get("max_task_retries", 0)
        return self._shared.description._replace(max_task_retries=retries)

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
        self._check_node()
        shared = self._shared
        # Without a number of CPUs an actor needs one to be placed and holds none; with it, it holds what it
        # says.
        held = _options.resources(options, 0.0)
        placement = _options.resources(options, 1.0)
        group = _options.group(options, placement)
        more = captured(options, group)
        if full is not None:
            more["actor_name"] = full
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
            max_restarts=options.get("max_restarts", 0),
            max_task_retries=options.get("max_task_retries", 0),
            max_concurrency=options.get("max_concurrency", default),
            concurrency_groups=list(options.get("concurrency_groups", {}).items()),
            is_async=shared.description.is_async,
            group=group,
        )

    def _check_node(self) -> None:
        if getattr(self._options.get("scheduling_strategy"), "node_id", None) is None:
            return
        from aktis import _session
        from aktis.exceptions import ActorUnschedulableError

        _session.ensure()
        missing = _options.wants_missing_node(self._options)
        if missing is not None:
            raise ActorUnschedulableError(
                f"the actor insists on the node {missing}, which is not there\n"
                "hint: soft=True lets it live elsewhere; aktis.nodes() lists the nodes"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"the actor class has no attribute {name!r}")
        return getattr(self._class, name)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"actors of {self.__name__!r} cannot be made by a call\n"
            f"hint: {self.__name__}.remote(...) creates one, {self.__name__}.__wrapped__(...) a plain object"
        )

    def __reduce__(self) -> Any:
        return _class_again, (self._class, self._options)

    def __repr__(self) -> str:
        return f"ActorClass({self.__qualname__})"


class _Shared:
    """What all variants of one actor class share: its export and what is known of its methods."""

    def __init__(self, cls: type) -> None:
        name = short_name(cls.__qualname__)

        def pickled() -> bytes:
            from aktis._serialization import dump_export

            return dump_export(cls, "class", name)

        self.export = Export(name, pickled)
        self.constructor = _signature_of(_constructor(cls, name))
        methods = discover(cls)
        self.groups = {
            m.options["concurrency_group"] for m in methods.values() if "concurrency_group" in m.options
        }
        is_async = any(method.is_async for method in methods.values())
        self.description = Description(name, cls.__module__, methods, is_async, 0)


def make(cls: type[C], options: Mapping[str, Any]) -> ActorClass[C]:
    """An actor class, its options checked."""
    return ActorClass(cls, _options.merge({}, options, _options.ACTOR, "actors"))


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


def _constructor(cls: type, name: str) -> _signature.Parameters:
    for base in cls.__mro__:
        function = vars(base).get("__init__")
        if function is not None and base is not object:
            return _signature.parameters(function, name, 1)
        function = vars(base).get("__new__")
        if function is not None and base is not object:
            return _signature.parameters(getattr(function, "__func__", function), name, 1)
    return _signature.Parameters(name, (), 0, 0, (), (), False, False)


def _signature_of(parameters: _signature.Parameters) -> Signature:
    return Signature(*parameters.bounds(), parameters.bind)


def _class_again(cls: type, options: _options.Options) -> ActorClass[Any]:
    return ActorClass(cls, options)


def method(*targets: Any, **options: Any) -> Any:
    """Sets options of one method of an actor: `@aktis.method(num_returns=2)`."""
    if targets or not options:
        raise TypeError("method takes options by keyword\nhint: @aktis.method(num_returns=2)")
    checked = _options.check(options, _options.METHOD, "methods")

    def decorate(function: F) -> F:
        setattr(function, METHOD_OPTIONS, checked)
        return function

    return decorate


# --- handles ----------------------------------------------------------------------------------


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
            known = Method(name, tuple(_signature.parameters(function, name, 1)), False, False, {})
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
        return [*super().__dir__(), *self._description.methods]

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
        caller = MethodCaller(
            actor,
            known.name,
            _signature_of(_signature.Parameters(*known.parameters)),
            name=options.get("name") or f"{description.class_name}.{known.name}",
            num_returns=returns,
            max_task_retries=options.get("max_task_retries", description.max_task_retries),
            retry_exceptions=_options.retries(options),
            concurrency_group=options.get("concurrency_group"),
            stream_ahead=_options.stream_ahead(options),
            is_async=description.is_async,
        )
        self.remote = _streaming(caller) if returns < 0 else caller

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


def handle_again(actor: Actor, details: bytes) -> ActorHandle[Any]:
    """The handle of an actor, from what travels."""
    return ActorHandle(actor, Description.unpack(details), details)


def _method_again(actor: Actor, details: bytes, name: str, options: _options.Options) -> ActorMethod:
    description = Description.unpack(details)
    return ActorMethod(actor, description, description.methods[name], options)


def _streaming(caller: MethodCaller) -> Callable[..., Any]:
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
            f"there is no actor with the name {name!r} in the namespace {wanted!r}\n"
            "hint: it may have ended, or live in another namespace; aktis.util.list_named_actors() lists them"
        )
    return handle_again(*found)


class ActorExit(SystemExit):
    """Unwinds the method that called `exit_actor`."""


def exit_actor() -> NoReturn:
    """Ends the actor that the calling code runs in, for good; what called it sees an error."""
    from aktis._engine import context

    here = context()
    if here.actor_id is None:
        raise TypeError("exit_actor() was called outside of an actor\nhint: call it in a method of an actor")
    native.exit_actor()
    raise ActorExit(0)


def current_handle(here: Any) -> ActorHandle[Any]:
    """A handle of the actor that the calling code runs in, from what the native part knows of it."""
    actor, details = here.actor()
    return handle_again(actor, details)
