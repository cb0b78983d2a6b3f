"""What a worker is set up with before it runs anything: variables, directory, where modules are found.

A *runtime environment* is what users write; its plain form is a dictionary. The *environment text* is what
the engine sees of it: JSON with sorted keys, or nothing. Workers are shared only between tasks with the same
text, so everything that must not be shared is in there. The *job* is what the driver gives to all its
workers, in one variable.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aktis import _folders, _packages

JOB_VARIABLE = "AKTIS_JOB"
INHERITED = (
    "env_vars",
    "working_dir",
    "working_dir_state",
    "py_modules",
    "folders",
    "packages",
    "setup_hook",
)
KNOWN = (
    "env_vars",
    "working_dir",
    "py_modules",
    "excludes",
    "pip",
    "uv",
    "conda",
    "py_executable",
    "worker_process_setup_hook",
    "preload",
    "config",
    "container",
    "image_uri",
    "nsight",
)
NOT_YET = ("conda", "container", "image_uri", "nsight", "py_executable")

_job: dict[str, Any] | None = None
_applied: dict[str, Any] = {}


class RuntimeEnv(dict[str, Any]):
    """A runtime environment as a value; a dictionary does as well."""

    def __init__(self, **fields: Any) -> None:
        self.update(validate(fields))


# --- users' side ------------------------------------------------------------------------------


def validate(value: Any) -> dict[str, Any]:
    """The environment in its plain form: paths absolute, modules as paths."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a runtime_env is a dictionary, not {type(value).__name__}")
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if key.startswith("_"):
            continue
        if key not in KNOWN:
            raise ValueError(f"a runtime_env has no field {key!r}\nhint: it has {', '.join(KNOWN)}")
        if item is not None:
            plain[key] = _VALIDATORS.get(key, _anything)(item)
    if "pip" in plain and "uv" in plain:
        raise ValueError("a runtime_env has either 'pip' or 'uv', not both")
    if "conda" in plain and ("pip" in plain or "uv" in plain):
        raise ValueError(
            "a runtime_env has either 'conda' or 'pip' and 'uv'\nhint: name pip's packages in 'conda'"
        )
    return plain


def _env_vars(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env['env_vars'] is a dictionary, not {type(value).__name__}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise TypeError(f"runtime_env['env_vars'] maps strings to strings, but has {key!r}: {item!r}")
        if not key or "=" in key or "\0" in key + item:
            raise ValueError(f"runtime_env['env_vars'] has {key!r}, which cannot be the name of a variable")
    return dict(value)


def _working_dir(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"runtime_env['working_dir'] is a path, not {type(value).__name__}")
    path = os.fspath(value)
    if "://" in path:
        return path
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(path):
        raise ValueError(f"runtime_env['working_dir'] is {path!r}, which is not a directory")
    return path


def _py_modules(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"runtime_env['py_modules'] is a list, not {type(value).__name__}")
    paths = []
    for item in value:
        file = getattr(item, "__file__", None)
        if file is not None:
            item = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file
        elif hasattr(item, "__path__"):
            item = next(iter(item.__path__))
        if not isinstance(item, (str, os.PathLike)):
            raise TypeError(f"runtime_env['py_modules'] has {item!r:.80}, which is no path and no module")
        path = os.fspath(item)
        if "://" not in path:
            path = os.path.abspath(os.path.expanduser(path))
            if not os.path.exists(path):
                raise ValueError(f"runtime_env['py_modules'] has {path!r}, which does not exist")
        paths.append(path)
    return paths


def _config(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env['config'] is a dictionary, not {type(value).__name__}")
    seconds = value.get("setup_timeout_seconds", 1)
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise TypeError(f"setup_timeout_seconds is a whole number, not {seconds!r}")
    if seconds <= 0 and seconds != -1:
        raise ValueError(f"setup_timeout_seconds is more than 0, or -1 for no limit, but is {seconds}")
    return dict(value)


def _pip(value: Any) -> Any:
    return _packages.spec("pip", value)


def _uv(value: Any) -> Any:
    return _packages.spec("uv", value)


def _setup_hook(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not callable(value):
        raise TypeError("runtime_env['worker_process_setup_hook'] is a function, or 'module.function'")
    import base64

    from aktis._serialization import dump_export

    return "pickle:" + base64.b64encode(dump_export(value, "setup hook", repr(value))).decode()


def _preload(value: Any) -> list[str]:
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"runtime_env['preload'] is a list of names of modules, not {value!r}")
    return list(value)


def _anything(value: Any) -> Any:
    return value


_VALIDATORS: dict[str, Callable[[Any], Any]] = {
    "env_vars": _env_vars,
    "working_dir": _working_dir,
    "py_modules": _py_modules,
    "pip": _pip,
    "uv": _uv,
    "config": _config,
    "worker_process_setup_hook": _setup_hook,
    "preload": _preload,
}


def refusal(environment: Mapping[str, Any]) -> str | None:
    """Why the environment cannot be made; None if it can."""
    for key in NOT_YET:
        if environment.get(key):
            return f"runtime_env[{key!r}] is not supported\nhint: use env_vars, working_dir and py_modules"
    for key in ("working_dir", "py_modules"):
        paths = environment.get(key) or ()
        for path in [paths] if isinstance(paths, str) else paths:
            if "://" in path:
                return f"runtime_env[{key!r}] is {path!r}, and only paths of this machine are supported"
    return None


def packages(environment: Mapping[str, Any]) -> _packages.Spec | None:
    """The packages that a runtime environment wants, if it does; with the time that they may take."""
    found = environment.get("pip") or environment.get("uv")
    if not found or not found["lines"]:
        return None
    seconds = (environment.get("config") or {}).get("setup_timeout_seconds")
    return found if seconds is None else {**found, "seconds": seconds}


def begin_packages(environment: Mapping[str, Any]) -> None:
    """What takes long is begun at once, and not when the first worker needs it."""
    wanted = packages(environment)
    if wanted is not None:
        _packages.begin(*_split(wanted))


def folders(environment: Mapping[str, Any]) -> dict[str, str]:
    """Has what a task or actor needs of this machine sent to where it runs; gives the digest of each path."""
    if not has_folders(environment):
        return {}
    try:
        return _folders.publish(environment)
    except _folders.FolderError as error:
        from aktis.exceptions import RuntimeEnvSetupError

        raise RuntimeEnvSetupError(str(error)) from None


def has_folders(environment: Mapping[str, Any]) -> bool:
    """Whether a runtime environment names something that is on this machine."""
    return bool(_folders.paths(environment))


def _split(wanted: _packages.Spec) -> tuple[_packages.Spec, float]:
    """The limit on the time is no part of what is wanted."""
    plain = {key: value for key, value in wanted.items() if key != "seconds"}
    return plain, wanted.get("seconds", _packages.SETUP_SECONDS_MAX)


# --- the environment text ---------------------------------------------------------------------


def text(
    runtime_env: Mapping[str, Any] | None, cpus: float | None, more: Mapping[str, Any] | None = None
) -> str:
    """What the engine gives to `apply` in the worker: this on top of what this process hands down."""
    settings: dict[str, Any] = {key: _applied[key] for key in INHERITED if key in _applied}
    own = runtime_env or {}
    if "env_vars" in own:
        settings["env_vars"] = {**settings.get("env_vars", {}), **own["env_vars"]}
    if "working_dir" in own:
        settings["working_dir"] = own["working_dir"]
        settings["working_dir_state"] = _folders.fingerprint(own["working_dir"])
    if "py_modules" in own:
        settings["py_modules"] = own["py_modules"]
    wanted = packages(own)
    if wanted is not None:
        settings["packages"] = wanted
    if "worker_process_setup_hook" in own:
        settings["setup_hook"] = own["worker_process_setup_hook"]
    threads = max(int(cpus or 1), 1)
    if threads != 1:
        settings["omp_num_threads"] = threads
    folders = {**settings.get("folders", {}), **(more or {}).get("folders", {})}
    settings.update(more or {})
    if folders:
        settings["folders"] = folders
    if not settings:
        return ""
    import json

    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


# --- the worker's side ------------------------------------------------------------------------


def job() -> dict[str, Any]:
    """What the driver gives to all its workers. Its variable does not reach what a worker starts."""
    global _job
    if _job is None:
        content = os.environ.pop(JOB_VARIABLE, "")
        if content:
            import json

            _job = json.loads(content)
        else:
            _job = {}
    return _job


def wanted_modules() -> Sequence[str]:
    """The modules that the driver wants preloaded in the template."""
    if _job is None and '"preload"' not in os.environ.get(JOB_VARIABLE, ""):
        # `init` waits for this answer, but need not wait for the import of `json`.
        return ()
    return (job().get("runtime_env") or {}).get("preload") or ()


def preload() -> None:
    """In the template: imports what the driver wants all its workers to be forked with.

    Libraries for linear algebra start their threads when they are loaded, and a fork takes none along. So
    they are loaded with one thread; torch gets more in the worker.
    """
    wanted = wanted_modules()
    if not wanted:
        return
    import importlib

    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    sys.path += [entry for entry in job().get("sys_path", ()) if entry not in sys.path]
    for module in wanted:
        try:
            importlib.import_module(module)
        except Exception as error:
            print(f"aktis: {module!r} could not be preloaded: {error!r}", file=sys.stderr, flush=True)
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def prepare(environment: str) -> str | None:
    """Applies the environment; gives the reason if that cannot be done."""
    from aktis import _session

    wanted = job().get("python", _session.PYTHON)
    if wanted != _session.PYTHON:
        return (
            f"the driver runs {wanted}, but {sys.executable} on {os.uname().nodename} is {_session.PYTHON}\n"
            "hint: have the same version of Python on all nodes, in the same place"
        )
    try:
        apply(environment)
    except (_packages.SetupError, _folders.FolderError) as error:
        return str(error)
    except Exception as error:
        import traceback

        last = "".join(traceback.format_exception(error)).rstrip()
        return f"the worker could not be set up: {type(error).__name__}: {error}\n{last}"
    return None


def apply(environment: str) -> None:
    """Makes this worker what its tasks want it to be."""
    global _applied
    settings: dict[str, Any] = {}
    if environment:
        import json

        settings = json.loads(environment)
    base = job()
    common = base.get("runtime_env") or {}
    variables = {**common.get("env_vars", {}), **settings.get("env_vars", {})}
    for name, value in variables.items():
        os.environ[name] = os.path.expandvars(value) if "${" in value else value
    wanted = settings.get("packages") or packages(common)
    installed = _packages.enter(_packages.ensure(*_split(wanted))) if wanted else []
    _set_path(base, common, settings, installed)
    if base.get("sets_omp", True) and "OMP_NUM_THREADS" not in variables:
        threads = settings.get("omp_num_threads", 1)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if "torch" in sys.modules:  # preloaded, so it has read the variable already
            sys.modules["torch"].set_num_threads(int(threads))
    _applied = settings
    hook = settings.get("setup_hook") or common.get("worker_process_setup_hook")
    if hook:
        _run_hook(hook)


def _set_path(
    base: dict[str, Any], common: Mapping[str, Any], settings: Mapping[str, Any], installed: list[str]
) -> None:
    """Puts in front of `sys.path`: the working directory, extra modules, installed packages, then what the
    driver has there."""
    digests = {**base.get("folders", {}), **settings.get("folders", {})}

    def here(path: str) -> str:
        return _folders.place(path, digests[path]) if path in digests else path

    directory = settings.get("working_dir") or common.get("working_dir")
    directory = here(directory) if directory else None
    front = [directory] if directory else []
    for module in settings.get("py_modules") or common.get("py_modules") or ():
        # A package is found in the directory around it; a wheel is searched itself.
        found = here(module)
        front.append(found if found.endswith((".whl", ".zip")) else os.path.dirname(found))
    front += installed
    front += [entry for entry in base.get("sys_path", ()) if entry not in front]
    sys.path[:] = front + [entry for entry in sys.path if entry not in front]
    folder = directory or base.get("cwd")
    if folder:
        try:
            os.chdir(folder)
        except OSError as error:
            if base.get("is_attached") and not directory:
                return  # another machine need not have the directory where the driver was started
            print(f"aktis: the working directory {folder!r} is not there: {error}", file=sys.stderr)


def _run_hook(hook: str) -> None:
    if hook.startswith("pickle:"):
        import base64

        from aktis._serialization import load_export

        load_export(base64.b64decode(hook[len("pickle:") :]))()
        return
    import importlib

    module, _, name = hook.rpartition(".")
    getattr(importlib.import_module(module), name)()


def applied() -> dict[str, Any]:
    """What this worker was set up with, beyond what the job has."""
    return _applied


def inherited_group() -> tuple[bytes, int] | None:
    """The placement group that this worker's tasks hand down to their children."""
    name = _applied.get("capture_group")
    return (bytes.fromhex(name), -1) if name else None
