"""Allreduce among 4 workers on one machine, beside OpenMPI and Gloo: 10 KB to 1 GB of float32.

    target/python/bin/python benches/learning/collective_allreduce.py --peers-python PATH

PATH is an interpreter with numpy, mpi4py and torch; `mpirun` is beside it or on the path. Each peer has its
turn in each round, so that ratios mean more than values. A figure is the time of the slowest worker, the
median of all repetitions and rounds.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import Demand, Figure, finish

WORKERS = 4
#: Bytes, repetitions in a round, and whether repetitions are timed together: a small one is too short.
SIZES = {
    "10 KB": (10_000, 2000, True),
    "10 MB": (10_000_000, 20, False),
    "100 MB": (100_000_000, 5, False),
    "1 GB": (1_000_000_000, 2, False),
}
#: How many times as fast as each peer Aktis has to be.
LIMITS = {"10 KB": 1 / 1.2, "10 MB": 1.0, "100 MB": 1.0, "1 GB": 1.0}
PEERS = {"aktis": "aktis", "openmpi": "OpenMPI", "gloo": "Gloo"}


def measure(
    allreduce: Callable[[], Any], barrier: Callable[[], Any], repeat: int, together: bool
) -> list[float]:
    """Seconds of each repetition, at this worker."""
    for _ in range(100 if together else 1):
        allreduce()
    if together:
        barrier()
        began = time.perf_counter()
        for _ in range(repeat):
            allreduce()
        return [(time.perf_counter() - began) / repeat]
    seconds = []
    for _ in range(repeat):
        barrier()
        began = time.perf_counter()
        allreduce()
        seconds.append(time.perf_counter() - began)
    return seconds


def slowest(workers: list[list[float]]) -> list[float]:
    return [max(each) for each in zip(*workers, strict=True)]


def run_aktis(count: int, repeat: int, together: bool) -> list[float]:
    import numpy as np

    import aktis

    @aktis.remote(num_cpus=0)
    def worker(rank: int) -> list[float]:
        with aktis.collective.init_group("bench", WORKERS, rank) as group:
            array = np.zeros(count, dtype=np.float32)
            return measure(lambda: group.allreduce(array), group.barrier, repeat, together)

    with aktis.init(num_cpus=2, log_to_driver=False):
        return slowest(aktis.get([worker.remote(rank) for rank in range(WORKERS)]))


def run_openmpi(count: int, repeat: int, together: bool) -> list[float]:
    import numpy as np
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    array = np.zeros(count, dtype=np.float32)
    seconds = measure(lambda: world.Allreduce(MPI.IN_PLACE, array), world.Barrier, repeat, together)
    return slowest(world.allgather(seconds))


def run_gloo(count: int, repeat: int, together: bool, rank: int) -> list[float]:
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=WORKERS)
    array = torch.zeros(count)
    # Its workers wait for milliseconds for each other when there are fewer cores than workers.
    seconds = measure(
        lambda: distributed.all_reduce(array), distributed.barrier, max(1, repeat // 10), together
    )
    every: list[Any] = [None] * WORKERS
    distributed.all_gather_object(every, seconds)
    distributed.destroy_process_group()
    return slowest(every)


def child(peer: str, size: str) -> None:
    bytes_, repeat, together = SIZES[size]
    count = bytes_ // 4
    if peer == "aktis":
        print(json.dumps(run_aktis(count, repeat, together)))
    elif peer == "openmpi":
        seconds = run_openmpi(count, repeat, together)
        if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
            print(json.dumps(seconds))
    else:
        rank = int(os.environ["RANK"])
        seconds = run_gloo(count, repeat, together, rank)
        if rank == 0:
            print(json.dumps(seconds), flush=True)


def turn(peer: str, size: str, peers_python: Path) -> list[float]:
    """Runs one peer in processes of its own."""
    arguments = [str(Path(__file__).resolve()), "--child", peer, size]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if peer == "aktis":
        return output([sys.executable, *arguments], environment)
    if peer == "openmpi":
        # The environment of the peers may have an OpenMPI of its own.
        beside = peers_python.parent / "mpirun"
        mpirun = str(beside) if beside.exists() else "mpirun"
        command = [mpirun, "--oversubscribe", "-n", str(WORKERS)]
        command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return output([*command, str(peers_python), *arguments], environment)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    others = [
        subprocess.Popen([str(peers_python), *arguments], env={**environment, "RANK": str(rank)})
        for rank in range(1, WORKERS)
    ]
    try:
        return output([str(peers_python), *arguments], {**environment, "RANK": "0"})
    finally:
        for other in others:
            other.wait(timeout=60)


def output(command: list[str], environment: dict[str, str]) -> list[float]:
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    return [float(value) for value in json.loads(done.stdout.strip().splitlines()[-1])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", type=Path, help="an interpreter with numpy, mpi4py and torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, without 1 GB")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("sizes", nargs="*", help=f"only these: {', '.join(SIZES)}")
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return 0
    peers = list(PEERS) if given.peers_python else ["aktis"]
    sizes = given.sizes or [size for size in SIZES if not (given.quick and size == "1 GB")]
    return finish([measured(size, peers, given) for size in sizes], given.json)


def measured(size: str, peers: list[str], given: argparse.Namespace) -> Figure:
    """One size with all peers by turns. A peer that fails once is not asked again."""
    seconds: dict[str, list[float]] = {peer: [] for peer in PEERS}
    failed: set[str] = set()
    for round_ in range(1 if given.quick else given.rounds):
        for peer in peers if round_ % 2 == 0 else reversed(peers):
            if peer in failed:
                continue
            try:
                seconds[peer] += turn(peer, size, given.peers_python)
            except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
                failed.add(peer)
                print(f"allreduce of {size}: {PEERS[peer]} is left out: {error}", file=sys.stderr, flush=True)
    milliseconds = {PEERS[peer]: [1e3 * value for value in values] for peer, values in seconds.items()}
    medians = {peer: statistics.median(values) if values else None for peer, values in milliseconds.items()}
    demands = tuple(Demand(LIMITS[size], peer) for peer in PEERS.values() if peer != "aktis")
    return Figure(
        f"allreduce of {size} among {WORKERS} workers",
        "ms",
        medians,
        demands,
        less_is_better=True,
        samples=milliseconds,
    )


if __name__ == "__main__":
    sys.exit(main())
