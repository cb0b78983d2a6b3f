"""Values as bytes: cloudpickle with protocol 5, and large buffers beside the bytes instead of inside.

1. A buffer of at least `BUFFER_BYTES_MIN` bytes leaves the pickle, so that it is written into shared memory
   once and read there without a copy. Smaller ones stay: an entry of their own would cost more than the copy.
2. An exception is pickled by its state, not by the arguments of its constructor, unless its class says
   otherwise.
3. What cannot be pickled is named: which variable, attribute or item, and of what type.
"""

import io
import pickle
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import Any, cast

import cloudpickle

from aktis import _arrays

BUFFER_BYTES_MIN = 1024
EXPORT_BYTES_MAX = 95 << 20
SEARCH_DEPTH_MAX = 6
# Packages whose functions and classes are pickled by their name without a closer look, which costs as much as
# pickling a small array does.
BY_NAME = frozenset({"collections", "datetime", "decimal", "numpy", "pandas", "pyarrow", "torch", "uuid"})
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that was made while the program ran

_custom: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's pickler, which also knows the users' own serialisers and how to send any exception."""

    def reducer_override(self, value: Any) -> Any:
        """How to pickle a value that pickle does not know by heart."""
        kind = type(value)
        if kind is FunctionType or isinstance(value, type):
            if _is_by_name(value):
                return NotImplemented
            reduced = super().reducer_override(value)
            if isinstance(value, type) and isinstance(reduced, tuple):
                _keep_slots(value, reduced)
            return reduced
        if _custom and kind in _custom:
            serializer, deserializer = _custom[kind]
            return _deserialize, (deserializer, serializer(value))
        if isinstance(value, BaseException):
            return reduce_exception(value) or NotImplemented
        module = kind.__module__
        return _arrays.reduce(module, value) if module in _arrays.REDUCERS else NotImplemented


def _is_by_name(value: Any) -> bool:
    """Whether a function or class is found under its name in one of the packages that everybody has."""
    module = value.__module__ or ""
    if module.partition(".")[0] not in BY_NAME:
        return False
    # Methods of named tuples say that they are of `collections`, but are not there.
    return getattr(sys.modules.get(module), value.__qualname__, None) is value


def _keep_slots(cls: type, reduced: tuple[Any, ...]) -> None:
    """A class that travels by value has slots at its other end, too: instances are laid out alike."""
    slots = vars(cls).get("__slots__")
    if (
        slots
        and isinstance(slots, (str, tuple, list, dict))
        and reduced[0].__name__ == "_make_skeleton_class"
    ):
        reduced[1][3]["__slots__"] = slots


def dumps(value: object) -> tuple[bytes, list[Any]]:
    """A value as bytes, and the buffers that lie beside them."""
    buffers: list[Any] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < BUFFER_BYTES_MIN:
            return True
        buffers.append(buffer)
        return False

    return _dump(value, in_band), buffers


def dumps_whole(value: object) -> bytes:
    """A value as bytes alone."""
    return _dump(value, None)


def loads(data: bytes, buffers: Any = ()) -> Any:
    """The value that `dumps` was given."""
    return pickle.loads(data, buffers=buffers)


def _dump(value: object, callback: Callable[[pickle.PickleBuffer], bool] | None) -> bytes:
    file = io.BytesIO()
    try:
        Pickler(file, protocol=5, buffer_callback=callback).dump(value)
    except Exception as error:
        if type(error).__module__.startswith("aktis."):
            raise
        raise TypeError(explain(value, error)) from error
    return file.getvalue()


# --- functions and classes that are exported --------------------------------------------------


def dump_export(value: Any, kind: str, name: str) -> bytes:
    """A function or class for workers."""
    try:
        blob = dumps_whole(value)
    except TypeError as error:
        raise TypeError(f"the {kind} {name!r} cannot be sent to workers: {error}") from error.__cause__
    if len(blob) > EXPORT_BYTES_MAX:
        told = f"The actor {name}" if kind == "class" else f"The remote function {value.__module__}.{name}"
        raise ValueError(
            f"{told} is too large\n"
            f"the {kind} {name!r} is too large to be sent to workers: {len(blob) >> 20} MiB, and the limit "
            f"is {EXPORT_BYTES_MAX >> 20} MiB\n"
            "hint: it uses a large value from outside; put() that value and pass the reference as an argument"
        )
    return blob


def load_export(blob: bytes) -> Any:
    """The function or class that `dump_export` was given; a class gets the methods that every actor has."""
    loaded = pickle.loads(blob)
    if isinstance(loaded, type):
        from aktis import _description

        _description.complete(loaded)
    return loaded


# --- users' own serialisers -------------------------------------------------------------------


def register_serializer(
    cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]
) -> None:
    """From now on, instances of exactly this class are pickled as what `serializer` gives for them."""
    if not isinstance(cls, type):
        raise TypeError(f"a serializer is registered for a class, not for {cls!r}")
    if not callable(serializer) or not callable(deserializer):
        raise TypeError("serializer and deserializer must be functions of one argument")
    _custom[cls] = (serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Instances of this class are pickled as usual again."""
    _custom.pop(cls, None)


def _deserialize(deserializer: Callable[[Any], Any], serialized: Any) -> Any:
    return deserializer(serialized)


# --- exceptions -------------------------------------------------------------------------------


def static_base(cls: type) -> type:
    """The first ancestor that is built into Python; it alone knows how instances are laid out."""
    return next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)


def reduce_exception(error: BaseException) -> Any:
    """How to pickle an exception whatever its constructor takes; None if its class has its own way."""
    cls = type(error)
    for base in cls.__mro__:
        if not base.__flags__ & HEAP_TYPE:
            break
        if "__reduce__" in vars(base) or "__reduce_ex__" in vars(base) or "__getstate__" in vars(base):
            return None
    return None if static_base(cls) is cls else (revive_exception, (cls, *state_of(error)))


def state_of(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that the built-in base of an exception wants, and its fields."""
    reduced: Any = cast(Any, static_base(type(error))).__reduce__(error)
    return reduced[1], {**(reduced[2] if len(reduced) > 2 else {}), **_slots(error)}


def _slots(error: BaseException) -> dict[str, Any]:
    """The fields that the classes of an exception keep outside of its dictionary."""
    names = [name for base in type(error).__mro__ for name in _names(vars(base).get("__slots__", ()))]
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def _names(slots: Any) -> list[str]:
    listed = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in listed if name not in ("__dict__", "__weakref__")]


def revive_exception(cls: type, args: tuple[Any, ...], state: dict[str, Any] | None) -> BaseException:
    """An exception as it was, without a call of its own constructor."""
    base: Any = static_base(cls)
    try:
        error: BaseException = base.__new__(cls, *args)
    except TypeError:
        # MemoryError alone has another way to be made than its bases, which a second base rules out.
        error = BaseException.__new__(cls, *args)
    base.__init__(error, *args)
    for name, value in (state or {}).items():
        BaseException.__setattr__(error, name, value)
    return error


# --- what cannot be pickled -------------------------------------------------------------------


def explain(value: object, error: BaseException) -> str:
    """Says which part of a value cannot be pickled."""
    reason = str(error).split("\n", 1)[0]
    if isinstance(error, RecursionError) or "recursion" in reason:
        return (
            f"{_describe(value)} cannot be pickled: it is nested too deeply\n"
            "hint: raise the limit with sys.setrecursionlimit, or send a flatter structure"
        )
    for path, part in culprits(value):
        if part is value:
            break
        return (
            f"{_describe(value)} cannot be pickled, because of {path} ({_describe(part)}): {reason}\n"
            "hint: make it inside the function instead, or leave it out (__getstate__, register_serializer "
            "for its class); inspect_serializability tells more"
        )
    return f"{_describe(value)} cannot be pickled: {reason}"


def culprits(value: object, *, every: bool = False) -> Iterator[tuple[str, object]]:
    """The innermost parts of a value that cannot be pickled, each with the way to it."""
    yield from _search(value, "", 0, set(), every)


def is_picklable(value: object) -> bool:
    """Whether a value can be pickled."""
    try:
        Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: None).dump(value)
    except Exception:
        return False
    return True


def _search(
    value: object, path: str, depth: int, seen: set[int], every: bool
) -> Iterator[tuple[str, object]]:
    if id(value) in seen or depth > SEARCH_DEPTH_MAX:
        return
    seen.add(id(value))
    found = False
    for step, part in parts(value):
        if id(part) in seen or is_picklable(part):
            continue
        for culprit in _search(part, f"{path} → {step}" if path else step, depth + 1, seen, every):
            found = True
            yield culprit
            if not every:
                return
    if not found:
        yield path or "the value itself", value


def parts(value: object) -> Iterator[tuple[str, object]]:
    """What a value consists of, for pickle: variables of functions, items, attributes."""
    if isinstance(value, MethodType):
        yield "self", value.__self__
    elif isinstance(value, FunctionType):
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=False):
            yield f"the closure variable {name!r}", _cell(cell)
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f"the global variable {name!r}", value.__globals__[name]
        for number, default in enumerate(value.__defaults__ or ()):
            yield f"the default of argument {number}", default
        for name, default in (value.__kwdefaults__ or {}).items():
            yield f"the default of argument {name!r}", default
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"the key {key!r:.60}", key
            yield f"the item [{key!r:.60}]", item
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, item in enumerate(value):
            yield f"the item [{number}]", item
    elif isinstance(value, type):
        for name, item in vars(value).items():
            if not name.startswith("__") or isinstance(item, FunctionType):
                item = item.__func__ if isinstance(item, (staticmethod, classmethod)) else item
                yield f"the member {value.__name__}.{name}", item
    elif not isinstance(value, BuiltinFunctionType):
        if isinstance(value, BaseException):
            for number, item in enumerate(value.args):
                yield f"args[{number}]", item
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            yield "the function inside", wrapped
        state = getattr(value, "__dict__", None)
        if isinstance(state, dict):
            for name, item in state.items():
                yield f"the attribute {type(value).__name__}.{name}", item


def _cell(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _describe(value: object) -> str:
    if isinstance(value, FunctionType):
        return f"the function {value.__qualname__!r}"
    if isinstance(value, type):
        return f"the class {value.__qualname__!r}"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"a value of type {name}"
