"""A cluster on this machine, for tests of programs that will run on a real one.

    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 2})
    cluster.add_node(num_cpus=4, resources={"licence": 1})
    ...
    cluster.shutdown()

Every node is a process of the command `aktis`, with a directory, workers and an object store of its own, as
on a machine of its own. The head's is the child of another one, the control process of the cluster.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
import weakref
from collections.abc import Callable
from typing import Any, Self

from aktis import _cli, _machine, _running
from aktis._system_config import Settings

__all__ = ["Cluster", "ClusterNode"]

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
STORE_BYTES = 256 << 20
"""Of a node whose store nobody chose: several share the memory of one machine."""

_OPTIONS: dict[str, Callable[[Any], list[str]]] = {
    "num_cpus": lambda amount: [f"--cpus={amount:g}"],
    "num_gpus": lambda amount: [f"--gpus={amount:g}"],
    "memory": lambda size: [f"--memory={int(size)}"],
    "object_store_memory": lambda size: [f"--store-bytes={int(size)}"],
    "resources": lambda amounts: [f"--resource={name}={amount:g}" for name, amount in amounts.items()],
    "labels": lambda labels: [f"--label={name}={value}" for name, value in labels.items()],
}

_OTHERS = frozenset({"env_vars", "object_spilling_directory"})

IGNORED = frozenset(
    {
        "dashboard_host",
        "dashboard_port",
        "enable_object_reconstruction",
        "include_dashboard",
        "include_log_monitor",
        "node_ip_address",
        "node_name",
        "num_workers",
        "redis_password",
        "temp_dir",
    }
)
"""Arguments of Ray's nodes that mean nothing here; as do those that begin with an underscore, but for
`_system_config`."""

_clusters: "weakref.WeakSet[Cluster]" = weakref.WeakSet()


class ClusterNode:
    """A node of a `Cluster`: a daemon in a directory of its own."""

    def __init__(self, directory: str, head: bool, arguments: dict[str, Any]) -> None:
        self.directory = directory
        self.head = head
        self.arguments = arguments
        self.process: subprocess.Popen[str] | None = None
        self._node_id: str | None = None

    @property
    def address(self) -> str:
        """For `aktis.init(address=node.address)`: this process becomes a driver on that node."""
        return self.directory

    def cluster_address(self) -> str:
        """Where the head of its cluster listens for other nodes."""
        with open(os.path.join(self.directory, "node", "address"), encoding="ascii") as file:
            return file.readline().strip()

    @property
    def node_id(self) -> str:
        """Its id, also when it has ended."""
        if self._node_id is None:
            raise RuntimeError("the node has not been started")
        return self._node_id

    unique_id = node_id

    def start(self, role: list[str], token: str = "") -> None:
        """Starts the daemon, and waits until it is ready."""
        options = ["start", *role, *self._spilling()]
        for name, value in self.arguments.items():
            if value is not None and name in _OPTIONS:
                options += _OPTIONS[name](value)
        # What the node inherits must not tell it, or its workers, to attach to another.
        environment = {name: value for name, value in os.environ.items() if name != "AKTIS_ADDRESS"}
        environment |= self.arguments.get("env_vars") or {}
        with open(self._log_path(), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                _command(self.directory, options, "_cli.end_with_parent()"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as given:
            given.write(f"{token}\n")
        self._wait_until_ready(self.process)

    def _spilling(self) -> list[str]:
        configuration = self.arguments.get("_system_config") or {}
        folder = self.arguments.get("object_spilling_directory")
        options = []
        if folder or configuration.get("object_spilling_config"):
            options.append(f"--spill-directory={_machine.spill_directory(folder, configuration)}")
        if Settings(configuration).spill_bytes_max == 0:
            options.append("--spill-bytes=0")
        return options

    def _wait_until_ready(self, process: "subprocess.Popen[str]") -> None:
        from aktis._engine import native

        deadline = time.monotonic() + START_SECONDS
        while True:
            ended = process.poll() is not None
            with contextlib.suppress(ConnectionError):
                own = native.cluster_nodes(self.directory)[0]
                self._node_id = own["node_id"].hex()
                return
            if ended or time.monotonic() > deadline:
                with open(self._log_path(), encoding="utf-8") as log:
                    raise RuntimeError(f"the node did not start: {log.read().strip()}")
            time.sleep(POLL_SECONDS)

    def _log_path(self) -> str:
        return f"{self.directory}.log"

    def stop(self, graceful: bool) -> None:
        """Ends the daemon, with all that runs there."""
        if self.process is None:
            return
        if graceful:
            self.process.terminate()
        else:
            self.process.kill()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        _kill_daemon(self.directory)

    def __repr__(self) -> str:
        return f"ClusterNode({'head' if self.head else 'worker'}, {self.directory})"


class Cluster:
    """Nodes on this machine.

    `initialize_head` adds the head, with `head_node_args` (see `add_node`); `connect` makes this process
    a driver on it.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: dict[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ) -> None:
        _clusters.add(self)
        self.head_node: ClusterNode | None = None
        #: All but the head, in the order in which they were added.
        self.worker_nodes: list[ClusterNode] = []
        self.connected = False
        self._directory = ""
        self._made = 0
        self._announcement: _running.Announcement | None = None
        if not initialize_head and connect:
            raise ValueError("`connect` needs a head\nhint: Cluster(initialize_head=True, connect=True)")
        if not initialize_head and head_node_args:
            raise ValueError("`head_node_args` needs a head\nhint: Cluster(initialize_head=True, ..)")
        if shutdown_at_exit:
            import atexit

            atexit.register(self.shutdown)
        if initialize_head:
            self.add_node(**(head_node_args or {}))
        if connect:
            self.connect()

    @property
    def address(self) -> str | None:
        """For `aktis.init(address=cluster.address)`: this process becomes a driver on the head's node. None
        before the first node."""
        return None if self.head_node is None else self.head_node.address

    gcs_address = address

    def connect(self, namespace: str | None = None) -> None:
        """Makes this process a driver on the head's node."""
        import aktis

        aktis.init(self.address, namespace=namespace)
        self.connected = True

    def add_node(self, wait: bool = True, **node_args: Any) -> ClusterNode:
        """Adds a node with `num_cpus`, `num_gpus`, `resources`, `memory`, `object_store_memory`,
        `object_spilling_directory`, `labels` and, in its environment, the variables `env_vars`.

        The first is the head. With `wait`, all nodes know of it when this returns. What the head's
        `_system_config` says holds for drivers of this process, and about spilling for all nodes.
        """
        accepted = _OPTIONS.keys() | _OTHERS | IGNORED
        unknown = [name for name in node_args if name not in accepted and not name.startswith("_")]
        if unknown:
            known = ", ".join(sorted(_OPTIONS.keys() | _OTHERS))
            raise TypeError(f"a node has no argument {unknown[0]!r}\nhint: it has {known}")
        arguments = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": STORE_BYTES, **node_args}
        own = {"node:127.0.0.1": 1.0}
        if self.head_node is None:
            own["node:__internal_head__"] = 1.0
        arguments["resources"] = {**own, **(arguments.get("resources") or {})}
        if node_args.get("enable_object_reconstruction") is False:
            given = arguments.get("_system_config") or {}
            arguments["_system_config"] = {"lineage_pinning_enabled": False, **given}
        if self.head_node is not None:
            arguments["_system_config"] = self.head_node.arguments.get("_system_config")
        node = ClusterNode(self._new_directory(), self.head_node is None, arguments)
        try:
            if node.head:
                node.start(["--head", "--listen=127.0.0.1:0"])
            else:
                node.start([f"--address={self._head().cluster_address()}", "--token=-"], self._token())
        except BaseException:
            node.stop(graceful=False)
            raise
        if node.head:
            self.head_node = node
            # Programs of this user find it as they find one that was started from the command line.
            with contextlib.suppress(OSError):
                self._announcement = _running.Announcement(node.directory, node.cluster_address())
        else:
            self.worker_nodes.append(node)
        if wait:
            self.wait_for_nodes()
        return node

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """Ends a node, with all that runs there; without `allow_graceful` it is killed.

        A session of this process on it ends before; one on a node that is killed is lost.
        """
        if node is not self.head_node and node not in self.worker_nodes:
            raise ValueError(f"{node!r} is not a node of this cluster")
        if allow_graceful:
            self._leave(node)
        node.stop(allow_graceful)
        if node.head:
            self.head_node = None
            if self._announcement is not None:
                self._announcement.withdraw()
        else:
            self.worker_nodes.remove(node)
        if not self.list_all_nodes():
            self._remove_directory()

    def list_all_nodes(self) -> list[ClusterNode]:
        """All nodes: the head, then the others in the order in which they were added."""
        head = [] if self.head_node is None else [self.head_node]
        return head + self.worker_nodes

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Waits until all nodes know each other, and no others; after `timeout` seconds, TimeoutError."""
        from aktis._engine import native

        nodes = self.list_all_nodes()
        deadline = time.monotonic() + timeout
        for node in nodes:
            while sum(row["is_alive"] for row in native.cluster_nodes(node.directory)) != len(nodes):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(nodes)} nodes were not there after {timeout} s")
                time.sleep(POLL_SECONDS)

    def shutdown(self) -> None:
        """Ends all nodes, and the session of this process on one of them. Does nothing the second time."""
        import atexit

        atexit.unregister(self.shutdown)
        for node in reversed(self.list_all_nodes()):
            self.remove_node(node)
        self._remove_directory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _head(self) -> ClusterNode:
        if self.head_node is None:
            raise RuntimeError("this cluster has no head\nhint: `cluster.add_node(num_cpus=2)`")
        return self.head_node

    def _new_directory(self) -> str:
        if not self._directory:
            import tempfile

            # The paths of sockets are short.
            self._directory = tempfile.mkdtemp(prefix="aktis-cluster-")
        self._made += 1
        return os.path.join(self._directory, str(self._made))

    def _remove_directory(self) -> None:
        if self._directory:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""

    def _token(self) -> str:
        """What a node joins with."""
        command = _command(self._head().directory, ["token"])
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def _leave(self, node: ClusterNode) -> None:
        """Ends the session of this process if that is on the node."""
        import aktis
        from aktis import _session

        with contextlib.suppress(RuntimeError):
            if aktis.is_initialized() and _session.current_address() == node.address:
                self.connected = False
                aktis.shutdown()


def remove_node(node_id: str, graceful: bool) -> bool:
    """Ends a node of any cluster of this process; false if none has it."""
    for cluster in list(_clusters):
        for node in cluster.list_all_nodes():
            if node.node_id == node_id:
                cluster.remove_node(node, allow_graceful=graceful)
                return True
    return False


def system_config(address: str) -> dict[str, Any]:
    """What drivers on a node of this process's clusters go by, unless they say otherwise."""
    for cluster in list(_clusters):
        if any(node.address == address for node in cluster.list_all_nodes()) and cluster.head_node:
            return dict(cluster.head_node.arguments.get("_system_config") or {})
    return {}


def _command(directory: str, arguments: list[str], before: str = "") -> list[str]:
    """The command line of `aktis` for a directory; `before` is a statement that comes first."""
    return [*_cli.command(before), "--directory", directory, *arguments]


def _kill_daemon(directory: str) -> None:
    """Kills the daemon of a directory, whose lock it has for as long as it lives. A head's outlives its
    parent."""
    with (
        contextlib.suppress(FileNotFoundError),
        open(os.path.join(directory, "lock"), encoding="ascii") as lock,
    ):
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                with contextlib.suppress(ValueError, ProcessLookupError):
                    os.kill(int(lock.read()), signal.SIGKILL)
                time.sleep(POLL_SECONDS)
            else:
                return
