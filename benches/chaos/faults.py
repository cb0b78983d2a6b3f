"""What happens to the processes of a cluster: kills and stops, from a seed."""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from aktis.cluster_utils import Cluster, ClusterNode

KINDS = ("worker", "node", "control", "stop-worker", "stop-node")
STOP_SECONDS_MAX = 20.0


def children(pid: int) -> list[int]:
    """The living processes that a process started."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(word) for word in thread.read_text().split()]
    return found


class Faults:
    """A fault every so often, at a random node but the head, whose daemon has the drivers."""

    def __init__(
        self, cluster: Cluster, seed: int, kinds: tuple[str, ...], node_args: dict[str, object]
    ) -> None:
        self.cluster, self.kinds, self.node_args = cluster, kinds, node_args
        self.dice = random.Random(seed)
        self.log: list[str] = []
        self.stopped: dict[int, float] = {}
        self.ended = threading.Event()

    def run(self, pause: float) -> None:
        """Faults until `ended` is set; then everything is running again."""
        while not self.ended.wait(min(pause, 0.5)):
            self.let_go_on(time.monotonic())
            if self.dice.random() < min(pause, 0.5) / pause:
                self.happen(self.dice.choice(self.kinds))
        self.let_go_on(float("inf"))

    def happen(self, kind: str) -> None:
        node = self.dice.choice(self.cluster.worker_nodes)
        daemon = node.process.pid if node.process is not None else 0
        if kind == "node":
            self.replace(node)
        elif kind == "control":
            self.restart_control()
        elif kind == "stop-node":
            self.stop(daemon)
        else:
            workers = [worker for child in children(daemon) for worker in children(child)]
            if not workers:
                return
            worker = self.dice.choice(workers)
            if kind == "worker":
                self.note(f"kill -9 of worker {worker} of node {node.node_id[:8]}")
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            else:
                self.stop(worker)

    def replace(self, node: ClusterNode) -> None:
        """Kills a node with its workers, as when the machine loses power, and adds another."""
        if node.process is None or any(pid in self.stopped for pid in [node.process.pid]):
            return
        self.note(f"kill -9 of node {node.node_id[:8]}, daemon {node.process.pid}")
        pids = [node.process.pid]
        for child in children(node.process.pid):
            pids += [child, *children(child)]
        for pid in pids:
            self.stopped.pop(pid, None)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)
        self.add_node()

    def add_node(self) -> None:
        """Adds a node. The control process may be away for a moment."""
        node = self.cluster.add_node(wait=False, **self.node_args)
        self.note(f"node {node.node_id[:8]} has joined")

    def restart_control(self) -> None:
        """Kills the control process; the head's node, its child, lives on."""
        head = self.cluster.head_node
        if head is None or head.process is None:
            return
        self.note(f"kill -9 of the control process {head.process.pid}")
        head.process.kill()
        head.process.wait()
        head.start(["--head"])

    def stop(self, pid: int) -> None:
        seconds = self.dice.uniform(0.2, STOP_SECONDS_MAX)
        self.note(f"process {pid} stops for {seconds:.1f} s")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + seconds

    def let_go_on(self, now: float) -> None:
        for pid in [pid for pid, due in self.stopped.items() if due <= now]:
            del self.stopped[pid]
            self.note(f"process {pid} goes on")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def note(self, what: str) -> None:
        self.log.append(f"{time.strftime('%H:%M:%S')} {what}")
