"""A pipeline of generators: each item goes on as soon as it is there, long before the last one is made.

Run it with `python examples/python/streaming.py`.
"""

import time
from collections.abc import Iterator

import aktis


@aktis.remote(num_returns="streaming")
def readings(count: int) -> Iterator[tuple[float, int]]:
    """Makes an item every 50 ms."""
    for number in range(count):
        time.sleep(0.05)
        yield time.time(), number


@aktis.remote
def enrich(reading: tuple[float, int]) -> tuple[float, str]:
    made, number = reading
    return made, f"reading {number}: {'#' * (number * number % 11)}"


def main() -> None:
    with aktis.init(num_cpus=2):
        started = time.time()
        slowest = 0.0
        # The loop gets references, each to an item. They are given on without being fetched.
        for reading in readings.remote(12):
            made, line = aktis.get(enrich.remote(reading))
            slowest = max(slowest, time.time() - made)
            print(f"{time.time() - started:5.2f} s  {line}")
        print(f"from being made to being shown: {1000 * slowest:.0f} ms at most")


if __name__ == "__main__":
    main()
