"""Run by Python as it starts, where `aktis.compat` is in use: prepares for `import ray`.

This directory is on PYTHONPATH, and so hides a `sitecustomize` that would be found otherwise; that one is run
in the end. Nothing of Aktis is imported before it is needed, since most programs that a program starts have
nothing to do with it.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder


class _OnFirstUse:
    """Brings the import hook of `aktis.compat` once `ray` is imported, or looked for. It stays: a program
    that only looks (`importlib.util.find_spec`) may import later."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != "ray":
            return None
        try:
            import aktis.compat  # noqa: F401
        except ModuleNotFoundError as error:
            if error.name != "aktis":
                raise
            return None  # another Python, which has no Aktis
        # Python takes the specification of a module that appears in the meantime for the one it asked for,
        # and would load Aktis again.
        sys.modules.pop("ray", None)
        return ModuleSpec("ray", _Enabled())  # type: ignore[arg-type]


class _Enabled:
    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: object) -> None:
        sys.modules["ray"] = sys.modules["aktis"]


def _run_hidden_one() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("AKTIS_COMPAT") == "1":
    sys.meta_path.insert(0, _OnFirstUse())
_run_hidden_one()
