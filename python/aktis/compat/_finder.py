"""The import hook: `ray.x` is `aktis.x` where there is one, else a module whose names raise when used.

The hook is the last of all, so whoever has modules of their own to offer below `ray` comes first. Python
would then find `ray.util` itself, since `ray` *is* `aktis` and so has its path, and would load it a second
time under the other name. `_Directory` keeps it from that.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

import aktis
from aktis.compat import _environment, _missing, _names

_ROOT = os.path.dirname(os.path.abspath(str(aktis.__file__)))
_LOADERS: list[tuple[Any, list[str]]] = [
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
]


class _Directory(FileFinder):
    """A directory of Aktis's package, in which nothing is found under a name of Ray's."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.startswith("ray."):
            return None
        return super().find_spec(fullname, target)


def _directory(path: str) -> _Directory:
    """A path hook: takes the directories of Aktis's package and no other."""
    if path != _ROOT and not path.startswith(_ROOT + os.sep):
        raise ImportError("not a part of aktis", path=path)
    return _Directory(path, *_LOADERS)


class _Loader:
    """Puts a module that exists in the place of the empty one that Python has made for the import."""

    def __init__(self, find: Callable[[], ModuleType]) -> None:
        self._find = find

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self._find()


class Finder:
    """Answers for `ray` and all below it, after every other finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("ray.") or fullname in _names.ABSENT:
            return None
        found = self._ask_later_ones(fullname, path, target)
        if found is not None:
            return found
        _environment.export()
        name = "aktis" + fullname[len("ray") :]
        if name not in sys.modules and not _exists(name):
            return _missing.spec_of(fullname, _names.MOVED.get(fullname, {}))
        return ModuleSpec(fullname, _Loader(lambda: _same(name)))  # type: ignore[arg-type]

    def _ask_later_ones(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Finders that were added behind this one come before it all the same."""
        if sys.meta_path[-1] is self:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else []
        for finder in later:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        """`importlib.metadata.version("ray")` agrees with `ray.__version__`."""
        if getattr(context, "name", None) != "ray":
            return []
        from aktis.compat._distribution import RayDistribution

        return [RayDistribution()]


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and not (name + ".").startswith(error.name + "."):
            raise  # a package of ours that cannot be imported
        return False


def _same(name: str) -> ModuleType:
    module = importlib.import_module(name)
    _missing.answer_for(module)
    _name_hidden_ones(module)
    return module


def _name_hidden_ones(package: ModuleType) -> None:
    """Names modules that are hidden by functions of the same name, such as `ray.util.placement_group`.

    Python makes a module that it imports an attribute of its package, and would hide the function in turn.
    """
    for name, value in list(vars(package).items()):
        module = sys.modules.get(f"{package.__name__}.{name}")
        if module is not None and module is not value:
            _missing.answer_for(module)
            sys.modules["ray" + module.__name__[len("aktis") :]] = module


def install() -> None:
    """Puts the hook into place."""
    sys.path_hooks.insert(0, _directory)
    for path in list(sys.path_importer_cache):
        if path == _ROOT or path.startswith(_ROOT + os.sep):
            del sys.path_importer_cache[path]
    sys.meta_path.append(Finder())
