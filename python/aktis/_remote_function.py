"""Remote functions: what `@remote` makes of a function.

`function.remote` is an attribute that holds the native caller itself, so that a call is one step into native
code. Python has a part only when a function is decorated, gets other options, or is pickled at its first
call.
"""

from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, overload

from aktis import _options, _runtime_env, _signature
from aktis._engine import Export, Signature, Stream, TaskCaller
from aktis._signature import short_name

if TYPE_CHECKING:
    from aktis._engine import ObjectRef
    from aktis._generator import ObjectRefGenerator

P = ParamSpec("P")
T = TypeVar("T")
Y = TypeVar("Y")


class RemoteFunction(Generic[P, T]):
    """A function that runs in workers: `f.remote(...)` gives a reference to its result at once."""

    def __init__(
        self,
        function: Callable[P, T],
        options: _options.Options,
        export: Export | None = None,
        *,
        is_whole: bool = True,
    ) -> None:
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = name
        self.__module__ = getattr(function, "__module__", None) or "__main__"
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._function = function
        self._options = options
        self._export = export or _export(function, name)
        if is_whole and not TYPE_CHECKING:
            self.remote = self._caller()

    if TYPE_CHECKING:
        # References may stand for arguments; where one does, the others are not checked.
        @overload
        def remote(self, *args: P.args, **kwargs: P.kwargs) -> ObjectRef[T]: ...
        @overload
        def remote(self, first: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRef[T]: ...
        @overload
        def remote(
            self, first: Any, second: ObjectRef[Any], /, *args: Any, **kwargs: Any
        ) -> ObjectRef[T]: ...
        @overload
        def remote(
            self, first: Any, second: Any, third: ObjectRef[Any], /, *args: Any, **kwargs: Any
        ) -> ObjectRef[T]: ...
        def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[T]:
            """Submits a task; raises TypeError if the arguments do not fit."""
    else:

        def __getattr__(self, name: str) -> Any:
            if name != "remote":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.remote = self._caller()
            return self.remote

    def options(self, **options: Any) -> "RemoteFunction[P, T]":
        """The same function with other options."""
        merged = _options.merge(self._options, options, _options.TASK, "tasks")
        return type(self)(self._function, merged, self._export)

    def _remote(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """`options(**options).remote(*args, **kwargs)`, under the name that old programs use."""
        chosen: Any = self.options(**options) if options else self
        return chosen.remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """A task in a graph of tasks, which `execute()` runs; see `aktis.dag`."""
        from aktis.dag import FunctionNode

        return FunctionNode(self, args, kwargs)

    def _caller(self) -> Callable[..., Any]:
        """What `remote` is: the native caller, or steps around it where a call needs some."""
        options = self._options
        try:
            _options.refuse_fractions(_options.resources(options, 1.0))
        except ValueError as error:
            return _refusing(error)
        environment = options.get("runtime_env") or {}
        refusal = _runtime_env.refusal(environment)
        if refusal is not None:
            from aktis.exceptions import RuntimeEnvSetupError

            return _refusing(RuntimeEnvSetupError(refusal))
        returns = _options.return_number(options, _signature.is_generator(self._function))
        if _runtime_env.has_folders(environment):
            caller = _with_folders(environment, lambda folders: self._placed_caller(returns, folders))
        else:
            caller = self._placed_caller(returns, {})
        if returns < 0:
            caller = _streaming(caller)
        if getattr(options.get("scheduling_strategy"), "node_id", None) is not None:
            caller = _bound_to_node(caller, options)
        if _runtime_env.packages(environment):
            caller = _beginning_packages(caller, environment)
        return caller

    def _placed_caller(self, returns: int, folders: Mapping[str, str]) -> Callable[..., Any]:
        """The caller of this function, for tasks that go where its options say."""
        options = self._options
        if options.get("fallback_strategy"):
            return _falling_back(options, lambda chosen: self._native_caller(returns, chosen, folders))
        return self._native_caller(returns, _options.placement(options), folders)

    def _native_caller(self, returns: int, strategy: Any, folders: Mapping[str, str]) -> TaskCaller:
        """The caller of this function, for tasks that go where `strategy` says; `folders` travel with it."""
        options = self._options
        name = options.get("name") or short_name(self.__qualname__)
        needs = _options.resources(options, 1.0)
        parameters = _signature.parameters(self._function, short_name(self.__qualname__))
        note_submission(name, short_name(self.__qualname__), needs)
        group = _options.group(options, needs)
        more = captured(options, group)
        if folders:
            more["folders"] = folders
        return TaskCaller(
            self._export,
            Signature(*parameters.bounds(), parameters.bind),
            name=name,
            resources=needs,
            environment=_runtime_env.text(options.get("runtime_env"), options.get("num_cpus"), more),
            num_returns=returns,
            max_retries=options.get("max_retries", _options.MAX_RETRIES_DEFAULT),
            retry_exceptions=_options.retries(options),
            stream_ahead=_options.stream_ahead(options),
            group=group,
            strategy=strategy,
            max_calls=options.get("max_calls", 1 if needs.get("GPU") else 0),
            priority=options.get("priority", 0),
            deadline=options.get("deadline"),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"the remote function {self.__name__!r} cannot be called directly\n"
            f"hint: {self.__name__}.remote(...) submits a task, {self.__name__}.__wrapped__(...) runs it here"
        )

    def __reduce__(self) -> Any:
        origin = self._export.origin_for_copy()
        return _again, (type(self), self._function, self._options, origin)

    def __repr__(self) -> str:
        return f"RemoteFunction({self.__module__}.{self.__qualname__})"


class RemoteGenerator(RemoteFunction[P, Y]):
    """A remote function that yields: `g.remote(...)` gives a stream of references."""

    if TYPE_CHECKING:

        def remote(self, *args: Any, **kwargs: Any) -> ObjectRefGenerator[Y]:  # type: ignore[override]
            """Submits the task; items arrive while it runs."""


def make(function: Callable[..., Any], options: Mapping[str, Any]) -> "RemoteFunction[..., Any]":
    """A remote function, its options checked."""
    name = short_name(function.__qualname__)
    if _signature.is_async(function):
        raise ValueError(
            f"{name!r} is an `async def`, and a task has no event loop\n"
            "hint: make it a method of an actor, or call asyncio.run(...) in a plain function"
        )
    checked = _options.merge({}, options, _options.TASK, "tasks")
    kind = RemoteGenerator if _signature.is_generator(function) else RemoteFunction
    return kind(function, checked)


def is_function(value: object) -> bool:
    """Whether `remote` takes it for a function: also compiled ones."""
    kind = type(value).__name__
    return isinstance(value, (FunctionType, BuiltinFunctionType)) or "cython_function" in kind


def captured(options: _options.Options, group: tuple[bytes, int] | None) -> dict[str, Any]:
    """What the worker has to know of its placement group: whether children run in it too."""
    chosen = _options.chosen_group(options)
    if group is None or (chosen is not None and not chosen[2]):
        return {}
    return {"capture_group": group[0].hex()}


SUBMISSIONS_MAX = 10_000
submissions: dict[str, tuple[str, dict[str, float]]] = {}
"""For lists of tasks: by a task's name, the function and the resources that it was last submitted with."""


def note_submission(name: str, function: str, needs: Mapping[str, float]) -> None:
    """Keeps what the lists of tasks tell of a task beside its name."""
    if len(submissions) >= SUBMISSIONS_MAX:
        del submissions[next(iter(submissions))]
    submissions[name] = (function, {key: amount for key, amount in needs.items() if amount})


def _export(function: Callable[..., Any], name: str, origin: tuple[int, int] | None = None) -> Export:
    def pickled() -> bytes:
        from aktis._serialization import dump_export

        return dump_export(function, "function", short_name(name))

    return Export(short_name(name), pickled, function, origin)


def _again(
    kind: Any, function: Callable[..., Any], options: _options.Options, origin: tuple[int, int] | None = None
) -> Any:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    # A function that refers to itself is unpickled before it has its defaults.
    return kind(function, options, _export(function, name, origin), is_whole=False)


def _falling_back(options: _options.Options, make: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """Which labels nodes have is known once there is a session."""
    callers: dict[str, Callable[..., Any]] = {}

    def remote(*args: Any, **kwargs: Any) -> Any:
        strategy = _options.placement(options, fall_back=True)
        key = repr(strategy)
        if key not in callers:
            callers[key] = make(strategy)
        return callers[key](*args, **kwargs)

    return remote


def _with_folders(
    environment: Mapping[str, Any], make: Callable[[Mapping[str, str]], Callable[..., Any]]
) -> Callable[..., Any]:
    """Whether folders travel, and what is in them, is known when a task is submitted."""
    callers: dict[frozenset[tuple[str, str]], Callable[..., Any]] = {}

    def remote(*args: Any, **kwargs: Any) -> Any:
        folders = _runtime_env.folders(environment)
        key = frozenset(folders.items())
        if key not in callers:
            callers[key] = make(folders)
        return callers[key](*args, **kwargs)

    return remote


def _streaming(caller: Callable[..., Any]) -> Callable[..., Any]:
    """Generators, with Python's own protocol of iteration around the native stream."""

    def remote(*args: Any, **kwargs: Any) -> Any:
        from aktis._generator import ObjectRefGenerator

        result = caller(*args, **kwargs)
        return ObjectRefGenerator(result) if isinstance(result, Stream) else result

    return remote


def _beginning_packages(caller: Callable[..., Any], environment: Mapping[str, Any]) -> Callable[..., Any]:
    def remote(*args: Any, **kwargs: Any) -> Any:
        _runtime_env.begin_packages(environment)
        return caller(*args, **kwargs)

    return remote


def _refusing(error: Exception) -> Callable[..., Any]:
    def remote(*args: Any, **kwargs: Any) -> NoReturn:
        raise type(error)(*error.args)

    return remote


def _bound_to_node(caller: Callable[..., Any], options: _options.Options) -> Callable[..., Any]:
    def remote(*args: Any, **kwargs: Any) -> Any:
        from aktis import _session
        from aktis.exceptions import TaskUnschedulableError

        _session.ensure()
        missing = _options.wants_missing_node(options, _options.resources(options, 1.0))
        if missing is not None:
            raise TaskUnschedulableError(
                f"{_options.UNSCHEDULABLE} task\nthe task insists on the node {missing}\n"
                "hint: soft=True lets it run elsewhere; aktis.nodes() lists the nodes"
            )
        return caller(*args, **kwargs)

    return remote
