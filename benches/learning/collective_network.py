"""Allreduce among 3 machines with links of 1 Gbit/s, encrypted, beside the bound of a ring.

    sudo target/python/bin/python benches/learning/collective_network.py

The machines are network namespaces of this one, each with a link to a bridge that `tc tbf` limits in both
directions; namespaces end with this program. In a ring of N members each link carries 2 (N - 1) / N times the
array: that, divided by the rate of the link, is the bound. The cards of the members go through pipes, in the
place of the engine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from results import Demand, Figure, finish

MACHINES = 3
BITS_PER_SECOND = 1_000_000_000
#: The least share of the bound.
SHARE = 0.85


def child(rank: int, address: str, count: int, repeat: int) -> None:
    """One member. Its card goes out, all cards come in, and the times go out."""
    import numpy as np

    from aktis.collective._door import CollectiveSeat

    seat = CollectiveSeat(f"machine {rank}", address)
    print(seat.card().hex(), flush=True)
    group = seat.join(rank, [bytes.fromhex(word) for word in sys.stdin.readline().split()], 60.0)
    array = np.ones(count, dtype=np.float32)
    memory = memoryview(array).cast("B")
    seconds = []
    for number in range(repeat + 1):
        array.fill(1)
        group.barrier()
        began = time.perf_counter()
        group.all_reduce("float32", "sum", None, memory)
        if number > 0:
            seconds.append(time.perf_counter() - began)
        assert (array == MACHINES).all()
    print(json.dumps(seconds), flush=True)


class Network:
    """Namespaces with limited links to one bridge."""

    def __init__(self) -> None:
        self.holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Network":
        hub = self._namespace()
        self._in(hub, "ip", "link", "add", "bridge", "type", "bridge")
        self._in(hub, "ip", "link", "set", "bridge", "up")
        for index in range(MACHINES):
            machine = self._namespace()
            port = f"port{index}"
            peer = ["peer", "name", "eth0", "netns", str(machine)]
            self._in(hub, "ip", "link", "add", port, "type", "veth", *peer)
            self._in(hub, "ip", "link", "set", port, "master", "bridge", "up")
            self._in(machine, "ip", "address", "add", f"10.0.0.{index + 1}/24", "dev", "eth0")
            self._in(machine, "ip", "link", "set", "eth0", "up")
            self._in(machine, "ip", "link", "set", "lo", "up")
            for namespace, device in ((hub, port), (machine, "eth0")):
                limit = ["rate", f"{BITS_PER_SECOND}bit", "burst", "256kb", "latency", "50ms"]
                self._in(namespace, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *limit)
        return self

    def __exit__(self, *exception: object) -> None:
        for holder in self.holders:
            holder.kill()
            holder.wait()

    def _namespace(self) -> int:
        """A process that has a network of its own, which ends with it."""
        command = ["unshare", "--net", "--kill-child", "sh", "-c", "echo; exec sleep infinity"]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.holders.append(holder)
        assert holder.stdout is not None
        holder.stdout.readline()
        return holder.pid

    def _in(self, namespace: int, *command: str) -> None:
        subprocess.run(["nsenter", "--target", str(namespace), "--net", "--", *command], check=True)

    def start(self, index: int, command: list[str]) -> "subprocess.Popen[str]":
        enter = ["nsenter", "--target", str(self.holders[index + 1].pid), "--net", "--"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([*enter, *command], **pipes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        rank, address, count, repeat = given.child
        child(int(rank), address, int(count), int(repeat))
        return 0
    if os.geteuid() != 0:
        print("error: network namespaces need root\nhint: run it with sudo", file=sys.stderr)
        return 2
    bytes_ = given.megabytes * 1_000_000
    with Network() as network:
        script = [sys.executable, str(Path(__file__).resolve()), "--child"]
        members = []
        for rank in range(MACHINES):
            arguments = [str(rank), f"10.0.0.{rank + 1}", str(bytes_ // 4), str(given.repeat)]
            members.append(network.start(rank, [*script, *arguments]))
        cards = [member.stdout.readline().strip() for member in members if member.stdout]
        for member in members:
            assert member.stdin is not None
            member.stdin.write(" ".join(cards) + "\n")
            member.stdin.flush()
        times = [json.loads(member.stdout.readline()) for member in members if member.stdout]
        for member in members:
            member.wait(timeout=60)
    seconds = statistics.median(max(each) for each in zip(*times, strict=True))
    bound = 2 * (MACHINES - 1) / MACHINES * bytes_ * 8 / BITS_PER_SECOND
    figure = Figure(
        f"allreduce of {given.megabytes} MB among {MACHINES} namespaces, 1 Gbit/s, encrypted",
        "s",
        {"aktis": seconds, "the ring's bound": bound},
        (Demand(SHARE, "the ring's bound"),),
        less_is_better=True,
    )
    return finish([figure], given.json)


if __name__ == "__main__":
    sys.exit(main())
