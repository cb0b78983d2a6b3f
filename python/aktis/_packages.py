"""Virtual environments with the packages that a runtime environment asks for (`pip`, `uv`).

One is made for each set of requirements, in a folder that all sessions of the user share (see `_cache`). It
sees what the program's own Python has, and what it has itself comes first.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from aktis import _cache

ENVIRONMENTS_MAX = 16
SETUP_SECONDS_MAX = 600
LINES_TOLD = 20
FAILED = ".failed"

Spec = dict[str, Any]

# Of the program's own Python, also in a worker that has become one of an environment.
_PREFIX = sys.prefix


class SetupError(Exception):
    """Why an environment could not be made, in words."""


# --- what is wanted ---------------------------------------------------------------------------


def spec(tool: str, value: Any) -> Spec:
    """What `runtime_env["pip"]` or `["uv"]` says, in its plain form: JSON."""
    given: Mapping[str, Any] = value if isinstance(value, Mapping) else {"packages": value}
    if given.get("tool") == tool:
        return dict(given)  # it has this form already
    install_options = "uv_pip_install_options" if tool == "uv" else "pip_install_options"
    unknown = sorted(set(given) - {"packages", f"{tool}_check", f"{tool}_version", install_options})
    if unknown:
        raise ValueError(f"runtime_env[{tool!r}] has no field {', '.join(map(repr, unknown))}")
    options = given.get(install_options) or ()
    found: Spec = {"tool": tool, "lines": _lines(tool, given.get("packages", []))}
    if options:
        found["options"] = _texts(f"runtime_env[{tool!r}]'s install options", options)
    if given.get(f"{tool}_check"):
        found["check"] = True
    if given.get(f"{tool}_version"):
        found["version"] = str(given[f"{tool}_version"])
    return found


def _lines(tool: str, packages: Any) -> list[str]:
    if isinstance(packages, (str, os.PathLike)):
        try:
            with open(packages, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise ValueError(
                f"runtime_env[{tool!r}] is {packages!r}, which cannot be read: {error}"
            ) from None
        lines = [line.split(" #", 1)[0].strip() for line in text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]
    texts = _texts(f"runtime_env[{tool!r}]", packages)
    # A path of this machine means the same wherever it is read.
    return [os.path.abspath(line) if _is_path(line) else line for line in texts]


def _texts(what: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{what} is a list of strings, the path of a file with requirements, or a dictionary")
    return list(value)


def _is_path(line: str) -> bool:
    return os.sep in line and "://" not in line and os.path.exists(line)


def identity(wanted: Spec) -> str:
    """Tells one set of requirements from another: by its content, that of local files, and by the Python."""
    import hashlib
    import json

    files = [[os.stat(line).st_size, os.stat(line).st_mtime_ns] for line in wanted["lines"] if _is_path(line)]
    content = json.dumps([wanted, files, sys.version, _PREFIX], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


# --- making it --------------------------------------------------------------------------------


_begun: set[str] = set()


def ensure(wanted: Spec, seconds: float = SETUP_SECONDS_MAX) -> str:
    """The folder of an environment, made if need be, and in use until this process ends."""
    since = time.time()

    def make(place: str) -> None:
        _make(wanted, place, since, seconds)

    return _cache.ensure("environments", identity(wanted), make, ENVIRONMENTS_MAX)


def begin(wanted: Spec, seconds: float = SETUP_SECONDS_MAX) -> None:
    """Has it made in the background, by a process that lives on while workers come and go. One that has
    become part of an environment cannot make another: the worker that wants it does."""
    name = identity(wanted)
    if name in _begun or sys.prefix != _PREFIX:
        return
    _begun.add(name)

    def make() -> None:
        # Workers tell how it failed.
        with contextlib.suppress(Exception):
            ensure(wanted, seconds)

    threading.Thread(target=make, name="aktis-packages", daemon=True).start()


def _make(wanted: Spec, place: str, since: float, seconds: float) -> None:
    """Makes an environment in an empty place. Who has waited for somebody who failed fails alike."""
    _tell_failure(place, since)
    try:
        _build(wanted, place, time.monotonic() + seconds if seconds > 0 else None)
    except SetupError as error:
        with open(place + FAILED, "w", encoding="utf-8") as file:
            file.write(str(error))
        raise
    except OSError as error:
        raise SetupError(f"the environment in {place} could not be made: {error}") from None
    with contextlib.suppress(FileNotFoundError):
        os.remove(place + FAILED)


def _tell_failure(place: str, since: float) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.stat(place + FAILED).st_mtime >= since:
            with open(place + FAILED, encoding="utf-8") as file:
                raise SetupError(file.read())


def _build(wanted: Spec, place: str, deadline: float | None) -> None:
    import venv

    venv.create(place, system_site_packages=True, with_pip=False, symlinks=True)
    with open(os.path.join(site_packages(place), "aktis-program.pth"), "w", encoding="utf-8") as file:
        file.writelines(f"{entry}\n" for entry in sys.path if _is_library(entry))
    requirements = os.path.join(place, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in wanted["lines"])
    for command in _commands(wanted, place, requirements):
        _run(command, wanted, deadline)


def _is_library(entry: str) -> bool:
    return os.path.basename(entry) in ("site-packages", "dist-packages") and os.path.isdir(entry)


def _commands(wanted: Spec, place: str, requirements: str) -> list[list[str]]:
    """What fills the environment. Without uv, pip does what it would do."""
    import importlib.util
    import shutil

    python = os.path.join(place, "bin", "python")
    options = wanted.get("options", [])
    uv = shutil.which("uv") if wanted["tool"] == "uv" else None
    if uv is not None:
        commands = [[uv, "pip", "install", "--python", python, *options, "-r", requirements]]
        return commands + ([[uv, "pip", "check", "--python", python]] if wanted.get("check") else [])
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    commands = [] if importlib.util.find_spec("pip") else [[python, "-m", "ensurepip"]]
    if wanted["tool"] == "pip" and "version" in wanted:
        commands.append([*pip, "install", f"pip{wanted['version']}"])
    commands.append([*pip, "install", *options, "-r", requirements])
    return commands + ([[*pip, "check"]] if wanted.get("check") else [])


def _run(command: list[str], wanted: Spec, deadline: float | None) -> None:
    import subprocess

    left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
    what = f"the environment with {', '.join(wanted['lines'])[:500]}"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=left,
            check=False,
            preexec_fn=_end_with_parent(),
        )
    except subprocess.TimeoutExpired:
        raise SetupError(
            f"{what} was not there in time\nhint: runtime_env['config']['setup_timeout_seconds'] is the limit"
        ) from None
    if done.returncode != 0:
        told = "\n".join(f"  | {line}" for line in done.stdout.splitlines()[-LINES_TOLD:])
        tool = "uv" if os.path.basename(command[0]) == "uv" else "pip"
        raise SetupError(f"{what} could not be made, {tool} said:\n{told}")


def _end_with_parent() -> Callable[[], Any]:
    """What a child calls in order to be killed when the thread that started it ends, however that ends."""
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL


# --- using it ---------------------------------------------------------------------------------


def site_packages(place: str) -> str:
    """Where an environment has its packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return os.path.join(place, "lib", version, "site-packages")


def enter(place: str) -> list[str]:
    """Makes this process one of the environment; gives what is to come first in `sys.path`."""
    import importlib
    import site

    before = set(sys.path)
    packages = site_packages(place)
    site.addsitedir(packages)
    added = [entry for entry in sys.path if entry not in before]
    _forget_modules(packages)
    importlib.invalidate_caches()
    bin_folder = os.path.join(place, "bin")
    os.environ["VIRTUAL_ENV"] = place
    os.environ["PATH"] = bin_folder + os.pathsep + os.environ.get("PATH", os.defpath)
    sys.executable = os.path.join(bin_folder, "python")
    sys.prefix = sys.exec_prefix = place
    return added


def _forget_modules(packages: str) -> None:
    """Modules that were imported before, and that the environment has too, are imported anew."""
    there = {entry.partition(".")[0] for entry in os.listdir(packages)}
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top in there and top not in ("aktis", "ray"):
            del sys.modules[name]
