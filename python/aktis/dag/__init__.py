"""Graphs of tasks and calls that are written down first and run later, as often as wanted.

    with InputNode() as value:
        doubled = double.bind(value)
        both = MultiOutputNode([doubled, add.bind(doubled, 1)])

    print(aktis.get(both.execute(3)))  # [6, 7]

`bind` gives a node and runs nothing. `execute` submits the tasks of the graph, each once, with references in
the place of nodes; `experimental_compile` gives the same graph with the interface of a compiled one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

__all__ = [
    "ClassMethodNode",
    "ClassNode",
    "CompiledDAG",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
]


class _Execution:
    """One run of a graph: what it was given, and what its nodes became."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self._results: dict[int, Any] = {}

    def result(self, node: "DAGNode") -> Any:
        """What a node became; each node runs once."""
        if id(node) not in self._results:
            self._results[id(node)] = node._run(self)
        return self._results[id(node)]

    def resolved(self, value: Any) -> Any:
        """A value with results in the place of nodes, also inside of containers."""
        if isinstance(value, DAGNode):
            return self.result(value)
        if isinstance(value, (list, tuple)) and _has_node(value):
            return type(value)([self.resolved(item) for item in value])
        if isinstance(value, dict) and _has_node(value):
            return {key: self.resolved(item) for key, item in value.items()}
        return value


def _has_node(value: Any) -> bool:
    if isinstance(value, DAGNode):
        return True
    if isinstance(value, (list, tuple)):
        return any(map(_has_node, value))
    return isinstance(value, dict) and any(map(_has_node, value.values()))


class DAGNode:
    """A step of a graph."""

    def __init__(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> None:
        self._bound_args = tuple(args)
        self._bound_kwargs = dict(kwargs or {})

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph up to this node: a reference, a list of them for several outputs, or a handle for
        an actor. The arguments are what `InputNode` stands for."""
        return _Execution(args, kwargs).result(self)

    def experimental_compile(self, **options: Any) -> "CompiledDAG":
        """The graph with the interface of a compiled one; the options are accepted, and have no effect."""
        return CompiledDAG(self)

    def get_args(self) -> tuple[Any, ...]:
        """The positional arguments that the node is bound to."""
        return self._bound_args

    def get_kwargs(self) -> dict[str, Any]:
        """The arguments by name that the node is bound to."""
        return dict(self._bound_kwargs)

    def with_tensor_transport(self, *args: Any, **kwargs: Any) -> Self:
        """The node itself: values travel as they always do."""
        return self

    def _run(self, execution: _Execution) -> Any:
        raise NotImplementedError

    def _call(self, remote: Callable[..., Any], execution: _Execution) -> Any:
        args = [execution.resolved(item) for item in self._bound_args]
        kwargs = {name: execution.resolved(item) for name, item in self._bound_kwargs.items()}
        return remote(*args, **kwargs)


class FunctionNode(DAGNode):
    """A task; made by `function.bind(...)`."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._function = function

    def options(self, **options: Any) -> "FunctionNode":
        """The same task with other options."""
        return FunctionNode(self._function.options(**options), self._bound_args, self._bound_kwargs)

    def _run(self, execution: _Execution) -> Any:
        return self._call(self._function.remote, execution)

    def __repr__(self) -> str:
        return f"FunctionNode({self._function!r})"


class ClassNode(DAGNode):
    """An actor; made by `Class.bind(...)`. Each execution has one of its own."""

    def __init__(self, actor_class: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._actor_class = actor_class

    def options(self, **options: Any) -> "ClassNode":
        """The same actor with other options."""
        return ClassNode(self._actor_class.options(**options), self._bound_args, self._bound_kwargs)

    def _run(self, execution: _Execution) -> Any:
        return self._call(self._actor_class.remote, execution)

    def __getattr__(self, name: str) -> "_UnboundMethod":
        if name.startswith("_"):
            raise AttributeError(name)
        if not hasattr(self._actor_class.__wrapped__, name):
            raise AttributeError(f"the actor class {self._actor_class.__name__!r} has no method {name!r}")
        return _UnboundMethod(self, name, {})

    def __repr__(self) -> str:
        return f"ClassNode({self._actor_class!r})"


class _UnboundMethod:
    """A method of an actor that is not there yet."""

    def __init__(self, actor: ClassNode, name: str, options: dict[str, Any]) -> None:
        self._actor = actor
        self._name = name
        self._options = options

    def options(self, **options: Any) -> "_UnboundMethod":
        return _UnboundMethod(self._actor, self._name, {**self._options, **options})

    def bind(self, *args: Any, **kwargs: Any) -> "ClassMethodNode":
        return ClassMethodNode(self, args, kwargs)

    def _of(self, execution: _Execution) -> Any:
        method = getattr(execution.result(self._actor), self._name)
        return method.options(**self._options) if self._options else method


class ClassMethodNode(DAGNode):
    """A call of an actor: `handle.method.bind(...)`, or `Class.bind(...).method.bind(...)`."""

    def __init__(self, method: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._method = method

    def _run(self, execution: _Execution) -> Any:
        method = self._method._of(execution) if isinstance(self._method, _UnboundMethod) else self._method
        return self._call(method.remote, execution)

    def __repr__(self) -> str:
        return f"ClassMethodNode({self._method!r})"


class InputNode(DAGNode):
    """What `execute` is given: the one argument itself, or with several `node[0]` and `node.name`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getitem__(self, key: Any) -> "InputAttributeNode":
        return InputAttributeNode(key)

    def __getattr__(self, name: str) -> "InputAttributeNode":
        if name.startswith("_"):
            raise AttributeError(name)
        return InputAttributeNode(name)

    def _run(self, execution: _Execution) -> Any:
        if len(execution.args) != 1 or execution.kwargs:
            given = len(execution.args) + len(execution.kwargs)
            raise ValueError(
                f"the graph uses its input as a whole, but execute() was given {given} arguments\n"
                "hint: give one argument, or use inputs by position (node[0]) or name (node.name)"
            )
        return execution.args[0]


class InputAttributeNode(DAGNode):
    """One of several arguments of `execute`, by position or name; or a part of the only one."""

    def __init__(self, key: Any) -> None:
        super().__init__()
        self._key = key

    def _run(self, execution: _Execution) -> Any:
        key, args, kwargs = self._key, execution.args, execution.kwargs
        if isinstance(key, str) and key in kwargs:
            return kwargs[key]
        if len(args) == 1 and not kwargs and not (key == 0 and not isinstance(args[0], (list, tuple, dict))):
            whole = args[0]
            return getattr(whole, key) if isinstance(key, str) and hasattr(whole, key) else whole[key]
        if isinstance(key, int) and key < len(args):
            return args[key]
        raise ValueError(f"execute() was not given the argument {key!r} that the graph uses")


class MultiOutputNode(DAGNode):
    """Several outputs: `execute` gives a list."""

    def __init__(self, outputs: Sequence[DAGNode], *_: Any, **__: Any) -> None:
        if not all(isinstance(node, DAGNode) for node in outputs):
            raise ValueError("the outputs of a graph are nodes\nhint: make them with .bind(...)")
        super().__init__(outputs)

    def _run(self, execution: _Execution) -> Any:
        return [execution.result(node) for node in self._bound_args]


class CompiledDAG:
    """A graph with the interface of a compiled one. It runs on the plain engine: actors that are bound as
    classes are created once, and every execution submits its calls."""

    def __init__(self, output: DAGNode) -> None:
        self._output = output
        self._actors: dict[int, Any] = {}
        self._closed = False

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph: a reference, or a list of them."""
        if self._closed:
            raise RuntimeError("the graph was torn down\nhint: compile it again")
        execution = _Execution(args, kwargs)
        execution._results.update(self._actors)
        result = execution.result(self._output)
        import aktis

        kept = {key: item for key, item in execution._results.items() if isinstance(item, aktis.ActorHandle)}
        self._actors.update(kept)
        return result

    async def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        """The same for coroutines; what it gives can be awaited."""
        return self.execute(*args, **kwargs)

    def teardown(self, kill_actors: bool = False) -> None:
        """Ends the graph; with `kill_actors` also the actors that it made."""
        import aktis

        self._closed = True
        if kill_actors:
            for actor in self._actors.values():
                aktis.kill(actor)
        self._actors.clear()

    def visualize(self, *_: Any, **__: Any) -> str:
        """The output node as text."""
        return repr(self._output)
