"""How the processes of a run find each other for `torch.distributed`."""

import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any

from aktis.train.group import START_SECONDS, WorkerGroup
from aktis.train.session import TrainContext
from aktis.train.trainer import Backend
from aktis.train.worker import node_address

__all__ = ["TorchConfig"]

SIOCGIFADDR = 0x8915
"""Asks the kernel for the address of an interface."""

LEAVE_SECONDS = 10.0
"""How long the workers of a finished run may take to leave the process group."""


@dataclass(frozen=True)
class TorchConfig:
    """Settings of `torch.distributed`. Without `backend` it is NCCL if the workers have GPUs, else Gloo."""

    backend: str | None = None
    init_method: str = "env"
    """Kept for programs that set it; the workers meet at a store of worker 0 in any case."""
    timeout_s: float = 1800.0
    """How long a collective operation may take before it raises."""


class TorchBackend(Backend):
    """Joins the workers to a process group, and sets the variables that `torchrun` sets."""

    def __init__(self, config: TorchConfig, use_gpu: bool) -> None:
        self.backend = config.backend or ("nccl" if use_gpu else "gloo")
        self.timeout_s = config.timeout_s

    def on_start(self, group: WorkerGroup) -> None:
        nodes = {member.place.node_id for member in group.members}
        address = "127.0.0.1" if len(nodes) == 1 else group.members[0].place.address
        port = group.call_first(open_store, address)
        group.call_all(join, self.backend, address, port, self.timeout_s, timeout=START_SECONDS)

    def on_end(self, group: WorkerGroup) -> None:
        group.call_all(leave, timeout=LEAVE_SECONDS)


_stores: list[Any] = []
"""The store that worker 0 keeps for the others."""


def distributed() -> Any:
    """`torch.distributed`, or an error that says what is missing."""
    try:
        import torch.distributed
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            "the worker has no torch\nhint: pip install torch on every node, or "
            'aktis.init(runtime_env={"pip": ["torch"]})',
            name="torch",
        ) from None
    return torch.distributed


def open_store(context: TrainContext, address: str) -> int:
    """In worker 0: opens the store at which all meet, and gives its port."""
    store = distributed().TCPStore(address, 0, context.world_size, is_master=True, wait_for_workers=False)
    _stores.append(store)
    return int(store.port)


def join(context: TrainContext, backend: str, address: str, port: int, timeout_s: float) -> None:
    """In each worker: joins the process group."""
    from datetime import timedelta

    dist = distributed()
    os.environ.update(
        MASTER_ADDR=address,
        MASTER_PORT=str(port),
        WORLD_SIZE=str(context.world_size),
        RANK=str(context.world_rank),
        LOCAL_RANK=str(context.local_rank),
        LOCAL_WORLD_SIZE=str(context.local_world_size),
        NODE_RANK=str(context.node_rank),
        GROUP_RANK=str(context.node_rank),
    )
    # By itself Gloo takes the interface of the host's name, which is often the loopback: right for workers of
    # one node only.
    alone = context.local_world_size == context.world_size
    interface = "lo" if alone else interface_of(node_address())
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if backend == "nccl":
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError(
                "the backend nccl needs a GPU, and this worker sees none\n"
                "hint: ScalingConfig(use_gpu=True) on nodes with GPUs, or TorchConfig(backend='gloo')"
            )
        torch.cuda.set_device(0)
    timeout = timedelta(seconds=timeout_s)
    store = (
        _stores[-1]
        if context.world_rank == 0
        else dist.TCPStore(address, port, is_master=False, timeout=timeout)
    )
    dist.init_process_group(
        backend, store=store, rank=context.world_rank, world_size=context.world_size, timeout=timeout
    )


def interface_of(address: str) -> str | None:
    """The network interface that has an address; None if none of this machine has it."""
    if ":" in address:
        wanted = socket.inet_pton(socket.AF_INET6, address).hex()
        with open("/proc/net/if_inet6", encoding="ascii") as table:
            return next((line.split()[-1] for line in table if line.startswith(wanted)), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def leave(context: TrainContext) -> None:
    """In each worker: leaves the process group, after all have come this far."""
    dist = distributed()
    if dist.is_initialized():
        dist.destroy_process_group()
    _stores.clear()
