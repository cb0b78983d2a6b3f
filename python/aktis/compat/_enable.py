"""Switches `import ray` over to Aktis, in this process and in those that it starts."""

import sys

import aktis
from aktis.compat import _environment, _finder, _missing


def enable() -> None:
    """Makes `import ray` give Aktis. Done by `import aktis.compat`; doing it again changes nothing."""
    present = sys.modules.get("ray")
    if present is aktis:
        return
    if present is not None:
        raise ImportError(
            "ray is imported already, so aktis.compat cannot take its place\n"
            "hint: import aktis.compat before anything that imports ray, "
            "or run the program with `python -m aktis.compat`",
            name="ray",
        )
    setattr(aktis, "__version__", _environment.RAY_VERSION)  # noqa: B010
    setattr(aktis, "__commit__", f"aktis {_environment.AKTIS_VERSION}")  # noqa: B010
    sys.modules["ray"] = aktis
    _finder.install()
    _missing.answer_for(aktis)
    _environment.export()
