"""Fits a line with a parameter server: an actor holds the parameters, workers send it gradients.

The workers do not wait for each other. Whenever one has finished, the server takes its gradient and gives it
new parameters, so a slow one holds nobody up.

Run it with `python examples/python/parameter_server.py`.
"""

import random
from typing import Any

import aktis

WORKERS = 3
STEPS = 300
RATE = 0.2

Parameters = tuple[float, float]


@aktis.remote
class ParameterServer:
    """Holds the slope and the intercept of the line."""

    def __init__(self) -> None:
        self.parameters: Parameters = (0.0, 0.0)

    def apply(self, gradient: Parameters) -> Parameters:
        slope, intercept = self.parameters
        self.parameters = (slope - RATE * gradient[0], intercept - RATE * gradient[1])
        return self.parameters

    def read(self) -> Parameters:
        return self.parameters


@aktis.remote
class Worker:
    """Has a part of the data, which never leaves it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        xs = [self.random.uniform(-1, 1) for _ in range(2_000)]
        self.data = [(x, 3 * x - 2 + self.random.gauss(0, 0.1)) for x in xs]

    def gradient(self, parameters: Parameters) -> Parameters:
        """Of the squared error, on a random part of the data."""
        slope, intercept = parameters
        batch = self.random.sample(self.data, 100)
        errors = [(x, slope * x + intercept - y) for x, y in batch]
        count = len(errors)
        return sum(x * error for x, error in errors) / count, sum(error for _, error in errors) / count


def main() -> None:
    with aktis.init(num_cpus=2):
        server = ParameterServer.remote()
        start = server.read.remote()
        # Which worker each pending gradient is from.
        pending: dict[Any, Any] = {}
        for seed in range(WORKERS):
            worker = Worker.remote(seed)
            pending[worker.gradient.remote(start)] = worker
        for step in range(1, STEPS + 1):
            [ready], _ = aktis.wait(list(pending))
            worker = pending.pop(ready)
            # The gradient goes from worker to server, and the parameters back. Here are only references.
            parameters = server.apply.remote(ready)
            pending[worker.gradient.remote(parameters)] = worker
            if step % 60 == 0:
                slope, intercept = aktis.get(parameters)
                print(f"step {step:3}: y = {slope:+.3f} x {intercept:+.3f}")
        print("the data was made with y = +3.000 x -2.000")


if __name__ == "__main__":
    main()
