"""`cargo xtask chaos`: a workload with known answers, while processes of its cluster are killed and stopped.

A head without CPUs has the drivers, and other nodes the work. Every answer must be right. When the drivers
have ended, no object, lease or checkpoint of theirs may be left. A run that went wrong prints its faults.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aktis
import faults
from aktis.cluster_utils import Cluster
from aktis.util import debug

HERE = Path(__file__).parent
LEFT_SECONDS = 60
"""How long the cluster may take to forget what nobody refers to any more."""


class Driver:
    """A driver's process."""

    def __init__(self, address: str, seed: int, checkpoints: str) -> None:
        command = [sys.executable, str(HERE / "workload.py"), address, str(seed), checkpoints]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit("a driver did not start")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def result(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told = self.process.stdout.read()
        self.process.wait()
        if self.process.returncode != 0 or not told:
            return {"done": {}, "wrong": [f"a driver ended with exit code {self.process.returncode}"]}
        result: dict[str, Any] = json.loads(told.splitlines()[-1])
        return result


def left(cluster: Cluster, checkpoints: str) -> list[str]:
    """What is left of the drivers, which have ended."""
    aktis.init(cluster.address, log_to_driver=False)

    def found() -> list[str]:
        used = debug.store_stats()["used_bytes"]
        free, all_of_it = aktis.available_resources(), aktis.cluster_resources()
        remains = [f"{used} bytes in the store"] if used else []
        remains += [
            f"{free.get(name, 0)} of {amount} {name} are free"
            for name, amount in all_of_it.items()
            if free.get(name, 0) != amount
        ]
        remains += [f"file {path}" for path in Path(checkpoints).rglob("*") if path.is_file()]
        return remains

    deadline = time.monotonic() + LEFT_SECONDS
    while (remains := found()) and time.monotonic() < deadline:
        time.sleep(0.1)
    aktis.shutdown()
    return [f"left after {LEFT_SECONDS} s: {what}" for what in remains]


def run(arguments: argparse.Namespace) -> int:
    node_args = {"num_cpus": 2, "resources": {"worker": 100}, "object_store_memory": 64 << 20}
    with (
        tempfile.TemporaryDirectory(prefix="aktis-chaos-") as checkpoints,
        Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster,
    ):
        for _ in range(arguments.nodes):
            cluster.add_node(**node_args)
        happening = faults.Faults(cluster, arguments.seed, tuple(arguments.faults), node_args)
        drivers = [
            Driver(str(cluster.address), arguments.seed * 100 + number, checkpoints)
            for number in range(arguments.drivers)
        ]
        thread = threading.Thread(target=happening.run, args=(arguments.pause,))
        thread.start()
        time.sleep(arguments.seconds)
        happening.ended.set()
        thread.join()
        for driver in drivers:
            driver.end()
        results = [driver.result() for driver in drivers]
        wrong = [told for result in results for told in result["wrong"]]
        wrong += left(cluster, checkpoints)
    done: Counter[str] = sum((Counter(result["done"]) for result in results), Counter())
    print(f"{done.total()} operations: {dict(sorted(done.items()))}")
    if wrong:
        print("\n".join(happening.log))
    print("\n".join(wrong))
    print(f"{len(happening.log)} events, {len(wrong)} wrong outcomes")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="cargo xtask chaos")
    parser.add_argument("--seconds", type=float, default=60, help="how long faults happen")
    parser.add_argument("--seed", type=int, default=1, help="which faults and operations")
    parser.add_argument("--nodes", type=int, default=4, help="nodes beside the head")
    parser.add_argument("--drivers", type=int, default=2, help="processes that submit work")
    parser.add_argument("--pause", type=float, default=2, help="seconds between two faults, on average")
    parser.add_argument("--faults", nargs="+", choices=faults.KINDS, default=list(faults.KINDS))
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
