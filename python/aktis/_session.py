"""Sessions: `init`, `shutdown`, and the `Session` value behind them.

A session is an embedded node with its workers or, with an address, a place in a node that runs already. The
module-level functions use the current one: that of the calling thread (`with Session(...)`), else that of the
process (`init`). In a worker there is always one, the driver's.
"""

import atexit
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self

from aktis import _folders, _jobs, _machine, _options, _running, _runtime_env
from aktis._engine import Runtime, context, current, native
from aktis._system_config import Settings

# Keywords of Ray's that have no meaning for an embedded node; they are accepted so that programs run
# unchanged.
IGNORED = frozenset(
    {
        "_driver_object_store_memory",
        "_enable_object_reconstruction",
        "_metrics_export_port",
        "_node_ip_address",
        "_node_name",
        "_plasma_directory",
        "_redis_max_memory",
        "_redis_password",
        "_redis_username",
        "_temp_dir",
        "_tracing_startup_hook",
        "allow_multiple",
        "configure_logging",
        "dashboard_host",
        "dashboard_port",
        "enable_resource_isolation",
        "include_dashboard",
        "job_config",
        "local_mode",
        "logging_config",
        "logging_format",
        "storage",
        "system_reserved_cpu",
        "system_reserved_memory",
    }
)

# What one version has pickled, only its like can read.
PYTHON = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"

# How long a program that leaves waits for the cluster to take note. Its node notices by itself later.
FAREWELL_SECONDS = 0.5

_process: "Session | None" = None
_lock = threading.RLock()
_exiting = False
_sessions: dict[int, "Session"] = {}


class UnknownKeywordError(TypeError, RuntimeError):
    """A keyword that `init` does not have. Python's programs expect the one class, Ray's the other."""


class Session:
    """A private cluster, for tests and for programs with several: `with Session(num_cpus=2) as s: ...`

    With an address it is no cluster of its own: it attaches to the node of this machine that the address
    means, and leaves it in the end. An address is "auto", "host:port" of a cluster's
    head, or a directory of a node.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        resources: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        object_store_memory: int | None = None,
        object_spilling_directory: str | None = None,
        log_to_driver: bool = True,
        logging_level: Any = None,
        namespace: str | None = None,
        share: bool | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        _system_config: Mapping[str, Any] | None = None,
        _memory: float | None = None,
        **more: Any,
    ) -> None:
        _check_ignored(more)
        unknown = sorted(set(more) - IGNORED)
        if unknown:
            raise UnknownKeywordError(
                f"init() has no keyword {', '.join(map(repr, unknown))}\n"
                "hint: it has num_cpus, num_gpus, memory, resources, labels, object_store_memory, namespace, "
                "share, runtime_env, log_to_driver, logging_level, ignore_reinit_error, address"
            )
        defaults = _defaults()
        job_config = more.get("job_config")
        if job_config is not None:
            namespace = namespace if namespace is not None else job_config.ray_namespace
            runtime_env = runtime_env if runtime_env is not None else job_config.runtime_env
        namespace = namespace if namespace is not None else defaults.get("namespace")
        self.address = _address(address)
        configuration = {
            **_config_of_cluster(self.address),
            **defaults.get("_system_config", {}),
            **(_system_config or {}),
        }
        # A node has a name for its session, and a job that runs on several needs one of its own.
        self.job_id = os.urandom(8).hex() if self.address is not None else ""
        of_node = {
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "memory": memory,
            "resources": resources,
            "labels": labels,
            "object_store_memory": object_store_memory,
            "object_spilling_directory": object_spilling_directory,
        }
        _refuse_options_of_node(self.address, of_node)
        if self.address is not None:
            _check_version()
        self.settings = Settings(configuration)
        self.labels = _options.labels("labels", labels or {})
        # A job without a namespace has one of its own, which nobody can guess.
        self.namespace = (
            _options.text("namespace", namespace) if namespace is not None else "~" + os.urandom(16).hex()
        )
        self.runtime_env = _runtime_env.validate(runtime_env or {})
        refusal = _runtime_env.refusal(self.runtime_env)
        if refusal is not None:
            from aktis.exceptions import RuntimeEnvSetupError

            raise RuntimeEnvSetupError(refusal)
        if logging_level is not None:
            import logging

            logging.getLogger("aktis").setLevel(logging_level)
        _runtime_env.begin_packages(self.runtime_env)
        folders = self._pack_folders()
        self.folders = {path: _folders.digest(archive) for path, archive in folders.items()}
        # The last argument is room for the titles of workers, which take the place of all arguments.
        template = [sys.executable, "-c", _template_program(), " " * 160]
        forward_output = bool(log_to_driver) and _switch("AKTIS_LOG_TO_DRIVER")
        if self.address is not None:
            attach_timeout = _attach_timeout()
            self.runtime = Runtime.attach(
                address=self.address,
                forward_output=forward_output,
                deduplicate_output=_switch("AKTIS_DEDUP_LOGS"),
                tuning=self.settings.tuning,
                template=template,
                # Which GPUs there are, if any, is up to each node.
                environment={_runtime_env.JOB_VARIABLE: self._job(), **_machine.hidden_gpus({"GPU": 1})},
                timeout=attach_timeout,
                share=_shares(share),
            )
        else:
            self.object_store_bytes = _machine.store_bytes(object_store_memory)
            given_memory = memory if memory is not None else _memory
            offered = _machine.offered(num_cpus, num_gpus, given_memory, resources)
            self.runtime = Runtime.start(
                resources=offered,
                store_bytes=self.object_store_bytes,
                spill_directory=_machine.spill_directory(object_spilling_directory, configuration),
                spill_bytes_max=self.settings.spill_bytes_max,
                spill_above_percent=self.settings.spill_above_percent,
                forward_output=forward_output,
                deduplicate_output=_switch("AKTIS_DEDUP_LOGS"),
                labels=self.labels,
                tuning=self.settings.tuning,
                template=template,
                environment={_runtime_env.JOB_VARIABLE: self._job(), **_machine.hidden_gpus(offered)},
            )
        # The template process is on its way. Earlier, this thread would keep the interpreter's lock from us.
        _load_ahead()
        self.runtime.wait_for_template()
        _sessions[self.runtime.number()] = self
        if self.address is not None:
            self._begin_attached(folders, attach_timeout)
        # A session that the program forgets ends before Python does: workers may have something to print.
        atexit.unregister(_shutdown_all)
        atexit.register(_shutdown_all)

    def _begin_attached(self, folders: Mapping[str, bytes], timeout: float) -> None:
        """Tells the cluster what it has to know of this job. Without a cluster that answers there is none."""
        from aktis.exceptions import GetTimeoutError

        self.runtime.answer_within(timeout)
        try:
            self.object_store_bytes = int(self.runtime.state("store")[0]["capacity_bytes"])
            with self._entered():
                for archive in folders.values():
                    _folders.keep(archive)
                _jobs.begin(self.job_id, context().node_id.hex())
        except BaseException as error:
            self._leave()
            if isinstance(error, GetTimeoutError):
                raise ConnectionError(
                    f"the cluster of the node at {self.address} has not answered within {timeout:g} seconds\n"
                    "hint: its control process or this node may be stopped; look with `aktis status`"
                ) from None
            raise
        self.runtime.answer_within(None)

    def _leave(self) -> None:
        """Gives the place in the node back, or ends it if it is this session's own."""
        self.runtime.shutdown()
        _sessions.pop(self.runtime.number(), None)

    def _pack_folders(self) -> dict[str, bytes]:
        """What workers on other machines need of this one."""
        if self.address is None:
            return {}
        try:
            return _folders.packed(self.runtime_env)
        except _folders.FolderError as error:
            from aktis.exceptions import RuntimeEnvSetupError

            raise RuntimeEnvSetupError(str(error)) from None

    def _job(self) -> str:
        """What every worker of this session is told."""
        import json

        here = _working_directory()
        paths = [os.path.join(here, entry) if entry else here for entry in sys.path]
        return json.dumps(
            {
                "namespace": self.namespace,
                "job_id": self.job_id,
                "labels": self.labels,
                "sys_path": [entry for entry in dict.fromkeys(paths) if os.path.isabs(entry)],
                "cwd": here,
                "python": PYTHON,
                "runtime_env": self.runtime_env,
                "is_attached": self.address is not None,
                "folders": self.folders,
                "sets_omp": "OMP_NUM_THREADS" not in os.environ,
                "gpus": _machine.visible_gpus() if self.address is None else None,
                "driver_pid": os.getpid(),
                "main": _main_name(),
                "tuning": self.settings.tuning,
            },
            sort_keys=True,
        )

    # What the module does with the current session, a session does with itself.

    def get(self, refs: Any, *, timeout: float | None = None) -> Any:
        """Values of references; see `aktis.get`."""
        from aktis import _objects

        return _objects.get(refs, timeout=timeout)

    def put(self, value: Any) -> Any:
        """Makes an object in this session; see `aktis.put`."""
        from aktis import _objects

        with self._entered():
            return _objects.put(value)

    def wait(
        self, refs: Any, *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
    ) -> Any:
        """Waits for some of several references; see `aktis.wait`."""
        from aktis import _objects

        return _objects.wait(refs, num_returns=num_returns, timeout=timeout, fetch_local=fetch_local)

    def submit(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `call.remote(*args, **kwargs)` in this session, whatever the current one is."""
        with self._entered():
            return call.remote(*args, **kwargs)

    def get_actor(self, name: str, namespace: str | None = None) -> Any:
        """The actor of this session with this name; see `aktis.get_actor`."""
        from aktis import _actor

        with self._entered():
            return _actor.get_actor(name, namespace)

    def cluster_resources(self) -> dict[str, float]:
        """What all nodes of this session have."""
        from aktis import _nodes

        with self._entered():
            return _nodes.cluster_resources()

    def available_resources(self) -> dict[str, float]:
        """What of it is free now."""
        from aktis import _nodes

        with self._entered():
            return _nodes.available_resources()

    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self.runtime.is_closed()

    def shutdown(self) -> None:
        """Ends the session with all its workers, objects and files; one with an address leaves its node, and
        ends nothing else. Does nothing the second time."""
        try:
            if self.address is not None and not self.runtime.is_closed():
                self.runtime.answer_within(FAREWELL_SECONDS)
                with suppress(Exception), self._entered():
                    _folders.withdraw()
                    _jobs.end(self.job_id)
        finally:
            self._leave()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        self.runtime.enter()
        try:
            yield
        finally:
            self.runtime.leave()

    def __enter__(self) -> Self:
        self.runtime.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.leave()
        self.shutdown()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed() else "open"
        return f"Session({self.runtime.session_id().hex()}, {state})"


class ClientContext(Mapping[str, Any]):
    """What `init` gives: facts about the session by key, and a context manager that ends it."""

    def __init__(self, runtime: Runtime) -> None:
        from aktis import _nodes

        self._runtime = runtime
        self._session = of(runtime)
        identity, directory = runtime.session_id().hex(), runtime.directory()
        head = _nodes.head_address(directory)
        # Workers are in the session of their driver.
        address = (directory if self._session is None else self._session.address) or "local"
        self.address_info: dict[str, Any] = {
            "address": address,
            "gcs_address": head or address,
            "node_ip_address": _nodes.own_address(head),
            "node_id": identity + "0" * 16,
            "session_name": f"session_{identity}",
            "session_dir": "",
            "object_store_address": "",
            "raylet_socket_name": "",
            "webui_url": "",
            "namespace": namespace(),
        }
        self.dashboard_url = ""
        self.python_version = ".".join(map(str, sys.version_info[:3]))
        from aktis._engine import native

        self.aktis_version = native.version()

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Ends the session, if it is still the current one."""
        if self._session is not None and _process is self._session:
            shutdown()

    def __repr__(self) -> str:
        is_closed = self._runtime.is_closed()
        resources = {} if is_closed else self._runtime.resources()
        shown = ", ".join(f"{name}={value:g}" for name, value in sorted(resources.items()) if ":" not in name)
        state = "closed" if is_closed else shown
        return f"Context(aktis {self.aktis_version}, Python {self.python_version}, {state})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(repr(self))}</pre>"


# --- the session of the process ---------------------------------------------------------------


def init(address: str | None = None, *, ignore_reinit_error: bool = False, **options: Any) -> ClientContext:
    """Starts the session of this process. What it takes is what `Session` takes."""
    global _process
    with _lock:
        existing = current()
        if existing is not None and not existing.is_closed():
            if not ignore_reinit_error:
                raise RuntimeError(
                    "aktis is initialised already\n"
                    "hint: init() was called twice; call shutdown() first, or pass ignore_reinit_error=True"
                )
            return ClientContext(existing)
        session = Session(address, **options)
        session.runtime.make_current()
        if _process is not None:
            _process.shutdown()  # one that was lost
        _process = session
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
        return ClientContext(session.runtime)


def ensure() -> Runtime:
    """The current session; the first call of a program starts one, and none after that was lost."""
    found = current()
    if found is None or found.is_closed():
        with _lock:
            found = current()
            if found is None or found.is_closed():
                _refuse_at_exit()
                _refuse_after_loss()
                init()
                found = current()
    assert found is not None
    return found


def shutdown(_exiting_interpreter: bool = False) -> None:
    """Ends the session of this process. Does nothing if there is none."""
    global _process
    with _lock:
        session, _process = _process, None
    if session is not None:
        session.shutdown()


def _shutdown_all() -> None:
    native.begin_exit()
    for session in list(_sessions.values()):
        session.shutdown()


def _at_exit() -> None:
    global _exiting
    _exiting = True
    native.begin_exit()
    shutdown()


def _refuse_at_exit() -> None:
    """A thread that goes on while the program ends must not start another session."""
    if _exiting:
        from aktis.exceptions import SessionClosedError

        raise SessionClosedError("the program is ending, and its session has ended")


def _refuse_after_loss() -> None:
    """Whoever loses the node that it was attached to must not go on by itself without a word."""
    text = loss()
    if text is not None:
        from aktis.exceptions import SessionClosedError

        raise SessionClosedError(text)


def loss() -> str | None:
    """What has become of the session of this process, if that is over and nobody has ended it."""
    if _exiting or _process is None or not _process.is_closed():
        return None
    return (
        f"the node at {_process.address or 'local'} has ended, and with it the session of this program\n"
        "hint: init() begins another one, without the objects and actors of the first; so does the next call "
        "after shutdown()"
    )


def is_initialized() -> bool:
    """Whether there is a session."""
    found = current()
    return found is not None and not found.is_closed()


def _current_session() -> Session:
    found = current()
    session = of(found) if found is not None else None
    if session is None:
        raise RuntimeError("this process is a worker, and has the session of its driver")
    return session


def current_address() -> str | None:
    """The address of the node that the current session is attached to; None if the node is its own."""
    return _current_session().address


def is_attached() -> bool:
    """Whether the current job runs on a node that is not its own, and so may run on several."""
    session = of(ensure())
    return session.address is not None if session is not None else bool(_runtime_env.job().get("is_attached"))


def namespace() -> str:
    """The namespace of the current job."""
    found = ensure()
    session = of(found)
    if session is not None:
        return session.namespace
    return str(_runtime_env.job().get("namespace", ""))


def job_id() -> bytes:
    """The id of the current job, the same on all nodes."""
    session = of(ensure())
    own = session.job_id if session is not None else str(_runtime_env.job().get("job_id", ""))
    return bytes.fromhex(own) or context().job_id


def labels() -> dict[str, str]:
    """The labels of this job's own node; those of a cluster's nodes are told by their daemons."""
    found = ensure()
    session = of(found)
    return dict(session.labels if session is not None else _runtime_env.job().get("labels", {}))


def job_environment() -> dict[str, Any]:
    """The runtime environment of the current job."""
    found = ensure()
    session = of(found)
    return dict(session.runtime_env if session is not None else _runtime_env.job().get("runtime_env", {}))


def of(runtime: Runtime) -> Session | None:
    """The session that this process started as this runtime; None in workers."""
    return _sessions.get(runtime.number())


# --- how a session is started -----------------------------------------------------------------


def _defaults() -> dict[str, Any]:
    """What a program gets without asking; under `aktis.compat`, what Ray's variables say."""
    if os.environ.get("AKTIS_COMPAT") == "1" and "aktis.compat" in sys.modules:
        from aktis.compat._environment import defaults

        return defaults()
    wanted = os.environ.get("AKTIS_NAMESPACE")
    return {"namespace": wanted} if wanted else {}


def _config_of_cluster(address: str | None) -> dict[str, Any]:
    """What was said to the head, if the node belongs to a `Cluster` of this process."""
    clusters = sys.modules.get("aktis.cluster_utils")
    return clusters.system_config(address) if clusters is not None and address is not None else {}


def _check_ignored(options: Mapping[str, Any]) -> None:
    """Options without an effect are checked all the same, where a wrong value tells of a mistake."""
    folder = options.get("_temp_dir")
    if folder is not None and not os.path.isabs(folder):
        raise ValueError(f"`_temp_dir` must be an absolute path, but is {folder!r}\nhint: os.path.abspath")
    job_config = options.get("job_config")
    if job_config is not None and not hasattr(job_config, "ray_namespace"):
        raise TypeError(f"`job_config` must be an aktis.job_config.JobConfig, not {job_config!r:.80}")


def _switch(variable: str) -> bool:
    """Whether something is on that a variable of the environment can turn off."""
    return os.environ.get(variable, "1") != "0"


def _shares(given: bool | None) -> bool:
    """Whether other jobs may use the actors and objects of this one."""
    return os.environ.get("AKTIS_SHARE") == "1" if given is None else bool(_options.flag("share", given))


def _attach_timeout() -> float:
    """How many seconds `init` waits for a node and its cluster that say nothing."""
    given = os.environ.get("AKTIS_ATTACH_TIMEOUT", "30")
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf"):
        raise ValueError(
            f"AKTIS_ATTACH_TIMEOUT must be a number of seconds, got {given!r}\nhint: 30 is the default"
        )
    return seconds


def _address(given: str | None) -> str | None:
    """The address of the node to attach to; None for a node in this process."""
    wanted = given or os.environ.get("AKTIS_ADDRESS") or "local"
    if not isinstance(wanted, str):
        raise TypeError(f"an address is a string, not {wanted!r}")
    return None if wanted == "local" else _of_program(wanted)


def _check_version() -> None:
    """A program written for Ray is refused where it says that it is of another version than the cluster."""
    if os.environ.get("AKTIS_COMPAT") != "1" or "aktis.compat" not in sys.modules:
        return
    import aktis
    from aktis.compat._environment import RAY_VERSION

    if aktis.__version__ != RAY_VERSION:
        raise RuntimeError(
            f"Version mismatch: this program has version {aktis.__version__}, the cluster {RAY_VERSION}\n"
            "hint: nodes and drivers have to be of the same version"
        )


def _of_program(address: str) -> str:
    """The directory of a running program's node, if the address means one; else the address itself."""
    if "/" in address or (address != "auto" and ":" not in address):
        return address
    found = _running.find(address)
    if found is None or (address == "auto" and not _running.is_younger(found, native.default_directory())):
        return address
    return found.directory


def _refuse_options_of_node(address: str | None, options: Mapping[str, Any]) -> None:
    """A node that runs already has what it has."""
    given = [name for name, value in options.items() if value is not None]
    if address is not None and given:
        raise ValueError(
            f"{', '.join(given)} cannot be chosen for a node that runs already, at {address}\n"
            "hint: leave the option out, or the address (AKTIS_ADDRESS is one, too)"
        )


def _main_name() -> str:
    """The name that the program would have as a module."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "__main__"


def _working_directory() -> str:
    """Where this process is; empty if that directory has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _template_program() -> str:
    """Starts the template with this very package, wherever the program found it."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return f"import sys; sys.path.insert(0, {home!r}); from aktis import _template; _template.main()"


def _load_ahead() -> None:
    """Imports what the first call needs, while the engine waits for its template process to do the same."""
    # Before the thread: a thread that imports a submodule of `importlib` while another one is inside of
    # `importlib/__init__.py` gets a second, uninitialised copy of the import system.
    import importlib
    import importlib.machinery
    import importlib.util  # noqa: F401
    import threading

    def load() -> None:
        import aktis._serialization  # noqa: F401

    threading.Thread(target=load, name="aktis-load", daemon=True).start()
