"""Machines with network stacks of their own: the workers of a run meet at an address that both reach."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import cluster_utils, train
from aktis.cluster_utils import STORE_BYTES, ClusterNode
from aktis.train import RunConfig, ScalingConfig
from aktis.train.torch import TorchTrainer
from aktis.train.torch.config import interface_of
from support import wait_until

ADDRESSES = ["10.78.0.1", "10.78.0.2"]
NODE = {"num_cpus": 1, "object_store_memory": STORE_BYTES}


class Machine:
    """A network namespace, which ends with the process that holds it."""

    def __init__(self) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = ["unshare", "--net", "--", "cat"]
        self.holder = subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes)
        assert self.holder.stdin is not None and self.holder.stdout is not None
        self.holder.stdin.write(b"there\n")
        self.holder.stdin.flush()
        if self.holder.stdout.readline() != b"there\n":
            raise PermissionError("this process may not make network namespaces")
        self.enter = ["nsenter", "--target", str(self.holder.pid), "--net", "--"]

    def ip(self, words: str) -> None:
        subprocess.run([*self.enter, "ip", *words.split()], check=True, capture_output=True)

    def plug(self, address: str) -> None:
        self.ip("link set lo up")
        self.ip(f"address add {address}/24 dev eth0")
        self.ip("link set eth0 up")

    def start(self, directory: Path, role: list[str], token: str = "") -> ClusterNode:
        node = ClusterNode(str(directory), "--head" in role, NODE)
        plain = cluster_utils._command
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster_utils, "_command", lambda *words: [*self.enter, *plain(*words)])
            node.start(role, token)
        return node

    def close(self) -> None:
        for pipe in (self.holder.stdin, self.holder.stdout):
            assert pipe is not None
            pipe.close()
        self.holder.wait()


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    """Two machines and a cable; neither knows a way to anywhere else."""
    made: list[Machine] = []
    try:
        made += [Machine()]
        made += [Machine()]
        made[0].ip(f"link add eth0 type veth peer name eth0 netns {made[1].holder.pid}")
    except (OSError, subprocess.CalledProcessError) as error:
        for machine in made:
            machine.close()
        pytest.skip(f"it takes `unshare`, `nsenter`, `ip` and the right to make network namespaces: {error}")
    for machine, address in zip(made, ADDRESSES):
        machine.plug(address)
    yield made
    for machine in made:
        machine.close()


@pytest.fixture
def cluster(machines: list[Machine], no_session: None, tmp_path: Path) -> Iterator[None]:
    """A node on each machine; this process is a driver of the first."""
    nodes = [machines[0].start(tmp_path / "0", ["--head", f"--listen={ADDRESSES[0]}:0"])]
    try:
        command = cluster_utils._command(nodes[0].directory, ["token"])
        token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        join = [f"--address={nodes[0].cluster_address()}", "--token=-"]
        nodes.append(machines[1].start(tmp_path / "1", join, token))
        aktis.init(nodes[0].address)
        wait_until(lambda: sum(row["Alive"] for row in aktis.nodes()) == 2)
        yield
        aktis.shutdown()
    finally:
        for node in reversed(nodes):
            node.stop(graceful=True)


def average() -> None:
    import torch

    total = torch.tensor([float(train.get_context().get_world_rank() + 1)])
    torch.distributed.all_reduce(total)
    names = ("MASTER_ADDR", "GLOO_SOCKET_IFNAME", "NODE_RANK")
    train.report({"total": total.item(), **{name: os.environ.get(name) for name in names}})


def test_torch_meets_at_the_address_of_the_first_workers_node(cluster: None, tmp_path: Path) -> None:
    found = TorchTrainer(
        average,
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=RunConfig(name="run", storage_path=tmp_path, verbose=0),
    ).fit()
    assert found.metrics is not None and found.metrics["total"] == 3.0
    assert found.metrics["MASTER_ADDR"] in ADDRESSES
    assert found.metrics["GLOO_SOCKET_IFNAME"] == "eth0"


def test_the_interface_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") is None
