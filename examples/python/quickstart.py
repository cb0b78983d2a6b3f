"""Tasks, objects and actors, in one page.

Run it with `python examples/python/quickstart.py`.
"""

import aktis


@aktis.remote
def square(x: int) -> int:
    """A task: a function that runs in a worker process."""
    return x * x


@aktis.remote
def total(*numbers: int) -> int:
    return sum(numbers)


@aktis.remote
class Counter:
    """An actor: an object that lives in a worker process of its own, and keeps its state between calls."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def add(self, text: str) -> None:
        for word in text.split():
            self.words[word] = self.words.get(word, 0) + 1

    def most_frequent(self) -> tuple[str, int]:
        return max(self.words.items(), key=lambda item: item[1])


def main() -> None:
    # A node with two CPUs starts inside this program, and ends with the block.
    with aktis.init(num_cpus=2):
        # `.remote` returns at once, with a reference to a value that does not exist yet.
        squares = [square.remote(n) for n in range(10)]
        print("squares:", aktis.get(squares))

        # References are arguments like any other value: this waits for nothing here.
        print("their sum:", aktis.get(total.remote(*squares)))

        # A value that many tasks need is put into the object store once.
        text = aktis.put("the quick brown fox jumps over the lazy dog and the cat")
        counter = Counter.remote()
        for _ in range(3):
            counter.add.remote(text)
        print("most frequent:", *aktis.get(counter.most_frequent.remote()))

        # `wait` gives whatever is ready first.
        pending = [square.remote(n) for n in range(4)]
        while pending:
            ready, pending = aktis.wait(pending)
            print("ready:", aktis.get(ready[0]), "- still pending:", len(pending))


if __name__ == "__main__":
    main()
