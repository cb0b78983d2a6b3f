"""Creates actors on all nodes of a cluster, and says how long it took until each has answered.

Usage: cluster_actors.py ADDRESS COUNT. It prints one JSON object. Started by `cargo xtask bench cluster`.
"""

import json
import os
import sys
import time

import aktis


@aktis.remote(num_cpus=0, resources={"room": 1})
class Resident:
    """An actor that says where it is."""

    def place(self) -> tuple[int, str]:
        return os.getpid(), aktis.get_runtime_context().get_node_id()


def main(address: str, count: int) -> None:
    aktis.init(address=address)
    begin = time.perf_counter()
    residents = [Resident.remote() for _ in range(count)]
    places = aktis.get([resident.place.remote() for resident in residents])
    seconds = time.perf_counter() - begin
    report = {
        "seconds": seconds,
        "processes": len({process for process, _ in places}),
        "nodes": len({node for _, node in places}),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
