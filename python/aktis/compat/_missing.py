"""Stand-ins for modules and names of Ray's that Aktis does not have: they can be imported, but not used."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from types import FrameType, FunctionType, ModuleType
from typing import Any, NoReturn, Self

_HINT = "hint: docs/coming-from-ray.md lists what is supported, and what to use instead"

# Frameworks look for attributes of these names on whatever they meet, and take what they get for an answer.
_PROBES = ("__", "_ipython_", "_repr_", "_pytest", "pytest_", "_fields", "_is_coroutine", "_mock_")


class NotSupported(NotImplementedError, AttributeError):
    """Something of Ray's was used that Aktis does not have.

    It is an AttributeError too, so `hasattr` of such a thing says no.
    """


def _refuse(name: str) -> NoReturn:
    raise NotSupported(f"{name} is not supported by aktis.compat\n{_HINT}")


def _is_probe(name: str) -> bool:
    return name.startswith(_PROBES)


class Missing:
    """A name that Aktis lacks. It fails when it is used, not where a module that uses it is imported.

    It can be imported, passed on, subclassed, written in annotations, and written above a function or class
    as a decorator without arguments. All else raises, and so does an instance of a subclass.
    """

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __repr__(self) -> str:
        return f"<{self._name}: not supported by aktis.compat>"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Missing) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __or__(self, other: object) -> object:
        return self

    def __ror__(self, other: object) -> object:
        return self

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __subclasscheck__(self, kind: type) -> bool:
        return _base(self._name) in kind.__mro__

    def __getattr__(self, name: str) -> Any:
        if _is_probe(name):
            raise AttributeError(name)
        _refuse(f"{self._name}.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        _refuse(f"{self._name}.{name}")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (_base(self._name),)

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        if len(args) == 1 and not kwargs and _is_being_defined(args[0], sys._getframe(1)):
            return Missing(f"{self._name}({args[0].__name__})")
        _refuse(self._name)

    def __bool__(self) -> bool:
        _refuse(self._name)

    def __len__(self) -> int:
        _refuse(self._name)

    def __iter__(self) -> Any:
        _refuse(self._name)

    def __getitem__(self, key: object) -> Self:
        return self

    def __contains__(self, key: object) -> bool:
        _refuse(self._name)

    def __enter__(self) -> Any:
        _refuse(self._name)

    def __exit__(self, *error: object) -> None:
        _refuse(self._name)

    def __await__(self) -> Any:
        _refuse(self._name)


def _is_being_defined(value: object, frame: FrameType) -> bool:
    """Whether `value` is a function or class that this frame defines and has not bound to its name yet.

    That is so while its decorators run.
    """
    if not isinstance(value, (FunctionType, type)) or value.__module__ != frame.f_globals.get("__name__"):
        return False
    bound = frame.f_locals.get(value.__name__, frame.f_globals.get(value.__name__))
    return value.__name__.isidentifier() and bound is not value


@cache
def _base(name: str) -> type:
    """The base of subclasses of what is missing: a class without instances."""
    module, _, last = name.rpartition(".")

    def refuse(cls: type, *args: object, **kwargs: object) -> NoReturn:
        _refuse(name)

    def leave_out_arguments(cls: type, **kwargs: object) -> None:
        """`class A(Missing, option=1)` is no error yet; other bases are told of the subclass."""
        super(base, cls).__init_subclass__()

    members = {
        "__new__": refuse,
        "__init_subclass__": leave_out_arguments,
        "__module__": module,
        "__doc__": f"{name}: not supported by aktis.compat.",
    }
    base: type[Any] = type(last, (), members)
    return base


@cache
def _missing(module: str, name: str) -> Any:
    """A stand-in for `module.name`. Exceptions and warnings can be caught, in vain."""
    full = f"{module}.{name}"
    kinds: dict[str, type[Exception]] = {"Error": Exception, "Exception": Exception, "Warning": Warning}
    base = next((base for ending, base in kinds.items() if name.endswith(ending)), None)
    if base is None:
        return Missing(full)

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        _refuse(full)

    members = {"__init__": refuse, "__module__": module, "__doc__": f"{full}: never raised."}
    return type(name, (base,), members)


def _find(module: str, name: str) -> Any:
    """A submodule that has not been imported, else what stands for a name that is not there."""
    full = f"{module}.{name}"
    try:
        return importlib.import_module(full) if _is_module(full) else _missing(module, name)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        return _missing(module, name)


def _is_module(name: str) -> bool:
    """Whether somebody has this module below `ray`. We have none ourselves of which nothing is known."""
    from aktis.compat import _names

    if name in sys.modules or name in _names.MOVED or name in _names.PACKAGES:
        return True
    spec = importlib.util.find_spec(name)
    return spec is not None and not isinstance(spec.loader, _PlaceholderLoader)


class Placeholder(ModuleType):
    """A module of Ray's that Aktis does not have."""

    def __getattr__(self, name: str) -> Any:
        if _is_probe(name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        moved: Mapping[str, str] = self.__dict__["__moved__"]
        value = resolve(moved[name]) if name in moved else _find(self.__name__, name)
        setattr(self, name, value)
        return value

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}: not supported by aktis.compat>"

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def resolve(target: str) -> Any:
    """What `module:name`, or `module`, says."""
    module, _, name = target.partition(":")
    value: Any = importlib.import_module(module)
    return getattr(value, name) if name else value


class _PlaceholderLoader:
    def __init__(self, moved: Mapping[str, str]) -> None:
        self._moved = moved

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Placeholder(spec.name, f"{spec.name} of Ray's, as far as Aktis has it.")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__moved__"] = self._moved


def spec_of(name: str, moved: Mapping[str, str]) -> ModuleSpec:
    """For the import of a module that Aktis does not have. `moved` tells where some of its names are."""
    return ModuleSpec(name, _PlaceholderLoader(moved), is_package=True)  # type: ignore[arg-type]


def answer_for(module: ModuleType) -> None:
    """Lets a module of Aktis's answer for names of Ray's that it lacks."""
    from aktis.compat import _names

    names = vars(module)
    if "__answers_for_ray__" in names:
        return
    own: Callable[[str], Any] | None = names.get("__getattr__")
    ray = "ray" + module.__name__[len("aktis") :]
    moved = _names.MOVED.get(ray, {})

    def __getattr__(name: str) -> Any:
        if own is not None:
            try:
                return own(name)
            except AttributeError:
                pass
        if _is_probe(name) or f"{ray}.{name}" in _names.ABSENT:
            raise AttributeError(
                f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module
            )
        if name in moved:
            return resolve(moved[name])
        return _find(ray, name) if "__path__" in names else _missing(ray, name)

    names["__getattr__"] = __getattr__
    names["__answers_for_ray__"] = True
