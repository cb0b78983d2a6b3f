"""A cluster on this machine, for tests of programs that will run on a real one.

    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 2})
    ...
    cluster.shutdown()

Today a cluster has one node, the head, which lives in the driver; `add_node` of a second raises
NotImplementedError.
"""

import uuid
from typing import Any, Self

__all__ = ["Cluster", "ClusterNode"]

_NODE_ARGUMENTS = {
    "num_cpus",
    "num_gpus",
    "resources",
    "memory",
    "object_store_memory",
    "labels",
    "object_spilling_directory",
    "_system_config",
}

heads: dict[str, dict[str, Any]] = {}
"""Heads that no driver has connected to yet: address -> arguments for `init`. `init(address=..)` takes them
from here."""


class ClusterNode:
    """A node of a `Cluster`."""

    def __init__(self, address: str, head: bool, arguments: dict[str, Any]) -> None:
        self.address = address
        self.head = head
        self.arguments = arguments

    @property
    def node_id(self) -> str:
        """Its id, once it runs."""
        from aktis.util.state import list_nodes

        nodes = list_nodes()
        if not nodes:
            raise RuntimeError("the node does not run yet\nhint: `cluster.connect()`")
        return nodes[0].node_id

    unique_id = node_id

    def __repr__(self) -> str:
        return f"ClusterNode({'head' if self.head else 'worker'}, {self.address})"


class Cluster:
    """Nodes on this machine.

    `initialize_head` adds the head, with `head_node_args` (see `add_node`); `connect` makes this process
    its driver.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: dict[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ) -> None:
        self.head_node: ClusterNode | None = None
        self.worker_nodes: set[ClusterNode] = set()
        self.connected = False
        if not initialize_head and connect:
            raise ValueError("`connect` needs a head\nhint: Cluster(initialize_head=True, connect=True)")
        if not initialize_head and head_node_args:
            raise ValueError("`head_node_args` needs a head\nhint: Cluster(initialize_head=True, ..)")
        if initialize_head:
            self.add_node(**(head_node_args or {}))
        if connect:
            self.connect()

    @property
    def address(self) -> str:
        """For `aktis.init(address=cluster.address)`."""
        return self._head().address

    gcs_address = address

    def connect(self, namespace: str | None = None) -> None:
        """Makes this process the driver."""
        import aktis

        arguments = dict(self._head().arguments)
        if namespace is not None:
            arguments["namespace"] = namespace
        heads.pop(self.address, None)
        aktis.init(**arguments)
        self.connected = True

    def add_node(self, wait: bool = True, **node_args: Any) -> ClusterNode:
        """Adds a node with `num_cpus`, `num_gpus`, `resources`, `memory`, `object_store_memory`, `labels`.

        The first is the head. It starts when a driver connects to it.
        """
        unknown = [name for name in node_args if name not in _NODE_ARGUMENTS and not name.startswith("_")]
        if unknown:
            known = ", ".join(sorted(_NODE_ARGUMENTS))
            raise TypeError(f"a node has no argument {unknown[0]!r}\nhint: it has {known}")
        if self.head_node is not None:
            raise NotImplementedError(
                "a second node cannot be added: sessions of several nodes are not there yet\n"
                "hint: give the resources of all nodes to the head"
            )
        arguments = {"num_cpus": 1, **node_args}
        self.head_node = ClusterNode(f"local:{uuid.uuid4().hex[:12]}", True, arguments)
        heads[self.head_node.address] = arguments
        return self.head_node

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """Ends a node. The end of the head is the end of the session."""
        import aktis

        if node is not self.head_node:
            raise ValueError(f"{node!r} is not a node of this cluster")
        heads.pop(node.address, None)
        self.head_node = None
        self.connected = False
        if aktis.is_initialized():
            aktis.shutdown()

    def list_all_nodes(self) -> list[ClusterNode]:
        """All nodes, the head first."""
        head = [] if self.head_node is None else [self.head_node]
        return head + list(self.worker_nodes)

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Waits until all nodes are there; TimeoutError if they are not after `timeout` seconds."""
        import time

        import aktis

        deadline = time.monotonic() + timeout
        wanted = len(self.list_all_nodes())
        while len([node for node in aktis.nodes() if node.get("Alive", True)]) != wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{wanted} nodes were not there after {timeout} s")
            time.sleep(0.05)

    def shutdown(self) -> None:
        """Ends all nodes, and the session of this process."""
        if self.head_node is not None:
            self.remove_node(self.head_node)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _head(self) -> ClusterNode:
        if self.head_node is None:
            raise RuntimeError("this cluster has no head\nhint: `cluster.add_node(num_cpus=2)`")
        return self.head_node
