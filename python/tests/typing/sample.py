"""A program for mypy: comments say what `reveal_type` must give, and which lines must be errors."""

from collections.abc import Iterator
from typing import reveal_type

import aktis


@aktis.remote
def square(x: int) -> int:
    return x * x


@aktis.remote(num_cpus=2)
def join(words: list[str], separator: str = ",") -> str:
    return separator.join(words)


@aktis.remote
def count(limit: int) -> Iterator[int]:
    yield from range(limit)


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, number: int) -> int:
        self.value += number
        return self.value


reveal_type(square)  # aktis._remote_function.RemoteFunction[[x: int], int]
reveal_type(square.remote(3))  # aktis._native.ObjectRef[int]
reveal_type(square.remote(square.remote(3)))  # aktis._native.ObjectRef[int]
reveal_type(aktis.get(square.remote(3)))  # int
reveal_type(aktis.get([square.remote(3)]))  # list[int]
reveal_type(square.options(num_cpus=2).remote(1))  # aktis._native.ObjectRef[int]
reveal_type(join.remote(["a"], separator=";"))  # aktis._native.ObjectRef[str]
reveal_type(aktis.put([1.0]))  # aktis._native.ObjectRef[list[float]]
reveal_type(count.remote(3))  # aktis._generator.ObjectRefGenerator[int]
reveal_type(next(count.remote(3)))  # aktis._native.ObjectRef[int]
RemoteCounter = aktis.remote(Counter)  # mypy does not look at the decorators of classes
reveal_type(RemoteCounter)  # aktis._actor.ActorClass[typing_sample.Counter]
reveal_type(RemoteCounter.remote(1))  # aktis._handle.ActorHandle[typing_sample.Counter]
reveal_type(aktis.wait([square.remote(1)])[0])  # list[aktis._native.ObjectRef[int]]

square.remote("three")  # error
square.remote()  # error
square.remote(1, 2)  # error
join.remote(["a"], end=";")  # error


async def main() -> None:
    reveal_type(await square.remote(3))  # int
    reveal_type(square.remote(3).future().result())  # int
