"""Estimates π from random points: many independent tasks, and an actor that shows how far they are.

Run it with `python examples/python/monte_carlo_pi.py`.
"""

import math
import random
import time
from typing import Any

import aktis

TASKS = 16
POINTS_PER_TASK = 50_000


@aktis.remote
class Progress:
    """Tasks report to it; the driver asks it."""

    def __init__(self) -> None:
        self.points: dict[int, int] = {}

    def report(self, task: int, points: int) -> None:
        self.points[task] = points

    def share(self) -> float:
        return sum(self.points.values()) / (TASKS * POINTS_PER_TASK)


@aktis.remote
def sample(task: int, progress: Any) -> int:
    """How many of the points in the unit square lie in the circle."""
    numbers = random.Random(task)
    inside = 0
    for point in range(1, POINTS_PER_TASK + 1):
        inside += math.hypot(numbers.random(), numbers.random()) <= 1
        if point % (POINTS_PER_TASK // 5) == 0:
            # A handle of an actor can be passed to tasks. Nobody waits for this call.
            progress.report.remote(task, point)
    return inside


def main() -> None:
    with aktis.init(num_cpus=2):
        started = time.perf_counter()
        progress = Progress.remote()
        pending = [sample.remote(task, progress) for task in range(TASKS)]
        inside = 0
        while pending:
            # The first that is ready, whichever it is.
            ready, pending = aktis.wait(pending)
            inside += sum(aktis.get(ready))
            if len(pending) % 4 == 0:
                print(f"{aktis.get(progress.share.remote()):4.0%} of the points")
        estimate = 4 * inside / (TASKS * POINTS_PER_TASK)
        print(f"π is about {estimate:.4f}, off by {abs(estimate - math.pi):.4f}")
        print(f"{TASKS * POINTS_PER_TASK:,} points in {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
