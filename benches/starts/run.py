"""Starts Python programs in parallel loops, which import aktis, attach or begin a session, and end.

Each start is a process of its own. A start that fails, hangs or prints to its standard error is printed;
the program then ends with 1.

    $ target/python/bin/python benches/starts/run.py --starts 2000 --loops 4
"""

import argparse
import itertools
import subprocess
import sys
import threading
import time

from aktis.cluster_utils import Cluster

PATIENCE_SECONDS = 120
"""How long one start may take on a machine that does many at once."""

TASK = """
@aktis.remote
def double(number):
    return 2 * number
assert aktis.get(double.remote(21)) == 42
"""

#: What each start runs, in turn: most of them only what a short script does first.
PROGRAMS = {
    "attach": "import aktis; aktis.init({address!r})",
    "attach and use": "import aktis; aktis.init({address!r})" + TASK,
    "session": "import aktis; aktis.init(num_cpus=1, object_store_memory=80 << 20)",
    "import": "import aktis",
}


class Loops:
    """Loops that start programs until enough were started."""

    def __init__(self, address: str | None, starts: int) -> None:
        self.address = address
        turns = itertools.cycle(PROGRAMS.items())
        self.left = iter([next(turns) for _ in range(starts)])
        self.lock = threading.Lock()
        self.started = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while True:
            with self.lock:
                name, program = next(self.left, ("", ""))
            if not program:
                return
            failure = start(program.format(address=self.address))
            with self.lock:
                self.started += 1
                if failure:
                    self.failures.append(f"{name}: {failure}")
                    print(self.failures[-1], flush=True)


def start(program: str) -> str:
    """Runs a program; what was wrong, if something was."""
    try:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE_SECONDS} s"
    if done.returncode != 0 or done.stderr:
        return f"exit code {done.returncode}: {done.stderr}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=2000)
    parser.add_argument("--loops", type=int, default=4)
    options = parser.parse_args()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 128 << 20})
    try:
        loops = Loops(cluster.address, options.starts)
        threads = [threading.Thread(target=loops.run) for _ in range(options.loops)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
    finally:
        cluster.shutdown()
    failed = len(loops.failures)
    print(f"{loops.started} starts in {options.loops} loops, {seconds:.0f} s: {failed} failed")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
