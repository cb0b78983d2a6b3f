"""An actor with coroutines: one process, many calls at once, as in a service that mostly waits for others.

Run it with `python examples/python/async_actor.py`.
"""

import asyncio
import time

import aktis


@aktis.remote
class Prices:
    """Asks a slow source, at most once for each item, however many callers there are."""

    def __init__(self) -> None:
        self.requests = 0
        self.answers: dict[str, asyncio.Task[int]] = {}

    async def ask_source(self, item: str) -> int:
        self.requests += 1
        await asyncio.sleep(0.2)  # a network, somewhere
        return 10 * len(item)

    async def price(self, item: str) -> int:
        if item not in self.answers:
            self.answers[item] = asyncio.ensure_future(self.ask_source(item))
        return await self.answers[item]

    async def request_count(self) -> int:
        return self.requests


async def shop(prices: "aktis.ActorHandle") -> int:
    # References are awaitable, alone and in `gather`.
    basket = ["bread", "butter", "jam"] * 30
    paid = await asyncio.gather(*(prices.price.remote(item) for item in basket))
    return sum(paid)


def main() -> None:
    with aktis.init(num_cpus=2):
        prices = Prices.remote()
        aktis.get(prices.request_count.remote())  # the actor is up
        started = time.perf_counter()
        total = asyncio.run(shop(prices))
        seconds = time.perf_counter() - started
        print(f"90 calls, {aktis.get(prices.request_count.remote())} requests to the source: {total} paid")
        print(f"{seconds:.2f} s, although each call waits for 0.2 s")


if __name__ == "__main__":
    main()
