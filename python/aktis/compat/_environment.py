"""What the programs and workers that this process starts must know: variables, and the search path."""

import os
import sys
from typing import Any

import aktis

RAY_VERSION = "2.60.0"
"""The version of Ray whose API is provided; `ray.__version__`."""

AKTIS_VERSION = str(aktis.__version__)
"""The version of Aktis, since `aktis.__version__` is Ray's while `aktis.compat` is in use."""

SWITCH = "AKTIS_COMPAT"
_STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")

# Ray's variables that mean something here; those of Aktis's own name win.
_RENAMED = {
    "RAY_ADDRESS": "AKTIS_ADDRESS",
    "RAY_NAMESPACE": "AKTIS_NAMESPACE",
    "RAY_TMPDIR": "AKTIS_TMPDIR",
    "RAY_DEDUP_LOGS": "AKTIS_DEDUP_LOGS",
    "RAY_LOG_TO_DRIVER": "AKTIS_LOG_TO_DRIVER",
    "RAY_OBJECT_STORE_MEMORY": "AKTIS_OBJECT_STORE_MEMORY",
}


def is_enabled() -> bool:
    """Whether `import ray` gives Aktis in this process."""
    return sys.modules.get("ray") is aktis


def export() -> None:
    """Writes the environment. Called again whenever there is an occasion, since the search path changes."""
    os.environ[SWITCH] = "1"
    for theirs, ours in _RENAMED.items():
        if theirs in os.environ:
            os.environ.setdefault(ours, os.environ[theirs])
    path = os.pathsep.join(_search_path())
    if os.environ.get("PYTHONPATH") != path:
        os.environ["PYTHONPATH"] = path


def _search_path() -> list[str]:
    """The start-up directory, and what this program has put on its path beyond what every Python has."""
    own = _own_directories()
    added = [os.path.abspath(entry) for entry in sys.path if entry == "" or not _is_below(entry, own)]
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return list(dict.fromkeys([_STARTUP, *added, *inherited]))


def _own_directories() -> tuple[str, ...]:
    """Where this Python has its libraries; a program that it starts has them without being told."""
    library = os.path.join("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix])
    places = [os.path.join(prefix, library) for prefix in prefixes]
    places += [os.path.join(prefix, "lib", zipped) for prefix in prefixes]
    return (*places, os.path.dirname(os.path.abspath(os.__file__)))


def _is_below(entry: str, directories: tuple[str, ...]) -> bool:
    entry = os.path.abspath(entry)
    return any(entry == directory or entry.startswith(directory + os.sep) for directory in directories)


def defaults() -> dict[str, Any]:
    """What a session is started with unless the program says otherwise; also an occasion for `export`."""
    export()
    found: dict[str, Any] = {}
    if namespace := os.environ.get("AKTIS_NAMESPACE"):
        found["namespace"] = namespace
    if settings := system_config():
        found["_system_config"] = settings
    return found


def system_config() -> dict[str, object]:
    """Ray's settings from the environment: `RAY_task_retry_delay_ms=5` sets `task_retry_delay_ms`."""
    settings: dict[str, object] = {}
    for name, text in os.environ.items():
        key = name.removeprefix("RAY_")
        if key != name and key and key == key.lower():
            settings[key] = _value(text)
    return settings


def _value(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
