"""One driver of a chaos run: operations with known answers, until its standard input ends.

usage: workload.py ADDRESS SEED CHECKPOINTS

It prints one JSON object: how many operations of each kind it has done, and which had a wrong outcome.
Every operation may be run again, so no error is allowed; one that takes longer than `HANG_SECONDS` is a hang.
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy

import aktis

HANG_SECONDS = 120
"""Longer than the longest stop of a process, the wait for an actor's lock, and some retries."""
THREADS = 2
TASK = {"max_retries": -1, "num_cpus": 0.25, "resources": {"worker": 0.01}}
ACTOR = {"max_restarts": -1, "max_task_retries": -1, "num_cpus": 0.1, "resources": {"worker": 0.01}}


@aktis.remote(**TASK)
def fill(number: int, length: int) -> Any:
    return numpy.full(length, number)


@aktis.remote(**TASK)
def add(array: Any, other: Any) -> Any:
    return array + other[0]


@aktis.remote(**TASK)
def total(refs: list[Any]) -> int:
    return sum(int(aktis.get(ref)[0]) for ref in refs)


@aktis.remote(**TASK)
def nested(number: int) -> int:
    return sum(aktis.get([total.remote([fill.remote(number, 3000), fill.remote(1, 10)]) for _ in range(3)]))


@aktis.remote(**TASK)
def items(count: int, length: int) -> Any:
    for number in range(count):
        yield numpy.full(length, number)


@aktis.remote(**ACTOR)
class Adder:
    def add(self, array: Any, number: int) -> int:
        return int(array[0]) + number


@aktis.remote(**ACTOR)
class Ledger:
    """Counts each number; it has checkpoints, so that each counts once."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def count(self, number: int) -> int:
        self.counts[number] += 1
        return self.counts[number]

    @aktis.method(read_only=True)
    def seen(self) -> dict[int, int]:
        return dict(self.counts)


class Wrong(Exception):
    """An operation gave another value than it must."""


def expect(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Wrong(f"{found!r} instead of {wanted!r}")


class Driver:
    """The operations of one thread."""

    def __init__(self, seed: int, checkpoints: str) -> None:
        self.dice = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.adder = Adder.remote()
        checkpoint = self.dice.choice([1, 7, 100, "50ms"])
        self.ledger = Ledger.options(checkpoint=checkpoint, checkpoint_directory=checkpoints).remote()
        self.counted = 0

    def chain(self) -> None:
        number, length = self.dice.randrange(1000), self.dice.choice([1, 5000, 200_000])
        ref = fill.remote(number, length)
        for _ in range(self.dice.randrange(1, 4)):
            ref = add.remote(ref, fill.remote(100, 3000))
            number += 100
        array = aktis.get(ref, timeout=HANG_SECONDS)
        expect((len(array), int(array[-1])), (length, number))

    def tree(self) -> None:
        leaves = [fill.remote(number, 100_000) for number in range(6)]
        sums = [add.remote(left, right) for left, right in zip(leaves[::2], leaves[1::2])]
        expect([int(array[0]) for array in aktis.get(sums, timeout=HANG_SECONDS)], [1, 5, 9])

    def nest(self) -> None:
        number = self.dice.randrange(1000)
        expect(aktis.get(nested.remote(number), timeout=HANG_SECONDS), 3 * (number + 1))

    def by_value(self) -> None:
        """A large argument that only its task refers to, and a result that is read late."""
        number = self.dice.randrange(1000)
        ref = add.remote(numpy.full(100_000, number), [1])
        aktis.wait([ref], timeout=HANG_SECONDS, fetch_local=False)
        time.sleep(self.dice.choice([0, 0.5]))
        expect(int(aktis.get(ref, timeout=HANG_SECONDS)[-1]), number + 1)

    def stream(self) -> None:
        """Items that are kept and read when the generator has ended."""
        count = self.dice.randrange(1, 6)
        kept = list(items.options(num_returns="streaming").remote(count, 50_000))
        time.sleep(self.dice.choice([0, 0.5]))
        expect([int(array[0]) for array in aktis.get(kept, timeout=HANG_SECONDS)], list(range(count)))

    def wait(self) -> None:
        refs = [fill.remote(number, 10) for number in range(8)]
        found, rest = [], refs
        while rest:
            ready, rest = aktis.wait(rest, timeout=HANG_SECONDS)
            if not ready:
                raise TimeoutError("wait has found nothing")
            found += [int(array[0]) for array in aktis.get(ready, timeout=HANG_SECONDS)]
        expect(sorted(found), list(range(8)))

    def call(self) -> None:
        array = fill.remote(7, self.dice.choice([10, 50_000]))
        calls = [self.adder.add.remote(array, number) for number in range(5)]
        expect(aktis.get(calls, timeout=HANG_SECONDS), [7 + number for number in range(5)])

    def count(self) -> None:
        first = self.counted
        self.counted += 20
        calls = [self.ledger.count.remote(number) for number in range(first, self.counted)]
        expect(aktis.get(calls, timeout=HANG_SECONDS), [1] * 20)

    def run(self, go_on: Callable[[], bool]) -> None:
        """Operations until `go_on` says no, then a last look at what was counted."""
        kinds = [
            self.chain,
            self.tree,
            self.nest,
            self.by_value,
            self.stream,
            self.wait,
            self.call,
            self.count,
        ]
        while go_on():
            self.attempt(self.dice.choice(kinds))
        self.attempt(self.check_counts)

    def check_counts(self) -> None:
        seen = aktis.get(self.ledger.seen.remote(), timeout=HANG_SECONDS)
        expect(seen, dict.fromkeys(range(self.counted), 1))

    def attempt(self, operation: Callable[[], None]) -> None:
        self.done[operation.__name__] += 1
        began = time.time()
        try:
            operation()
        except Exception as error:
            when = time.strftime("%H:%M:%S", time.localtime(began))
            self.wrong.append(f"{when} {operation.__name__}: {type(error).__name__}: {error}")


def main(address: str, seed: int, checkpoints: str) -> None:
    aktis.init(address, log_to_driver=False)
    drivers = [Driver(seed * THREADS + number, checkpoints) for number in range(THREADS)]
    ended = threading.Event()
    threads = [threading.Thread(target=driver.run, args=(lambda: not ended.is_set(),)) for driver in drivers]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    done = sum((driver.done for driver in drivers), Counter())
    wrong = [told for driver in drivers for told in driver.wrong]
    del drivers, threads
    aktis.shutdown()
    print(json.dumps({"pid": os.getpid(), "done": done, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
