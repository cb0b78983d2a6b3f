"""Trains a linear model on data that is spread over workers, which average their gradients with `allreduce`.

Each worker computes a gradient from its own data. After `allreduce` all have the same mean, so they take the
same step and stay equal, without a server in the middle.

Run it with `python examples/python/allreduce.py`.
"""

import numpy as np

import aktis

WORKERS = 4
STEPS = 200
RATE = 0.5
WEIGHTS = np.array([3.0, -2.0, 0.5])


@aktis.remote(num_cpus=0.5)
class Worker:
    """Has a part of the data, and a copy of the weights."""

    def __init__(self, rank: int) -> None:
        random = np.random.default_rng(rank)
        self.inputs = random.uniform(-1, 1, (500, len(WEIGHTS)))
        self.outputs = self.inputs @ WEIGHTS + random.normal(0, 0.01, 500)
        self.weights = np.zeros(len(WEIGHTS))
        self.group = aktis.collective.init_group("training", WORKERS, rank)

    def train(self, steps: int) -> np.ndarray:
        for _ in range(steps):
            errors = self.inputs @ self.weights - self.outputs
            gradient = self.inputs.T @ errors / len(errors)
            self.group.allreduce(gradient, "mean")
            self.weights -= RATE * gradient
        return self.weights


def main() -> None:
    with aktis.init(num_cpus=2):
        workers = [Worker.remote(rank) for rank in range(WORKERS)]
        weights = aktis.get([worker.train.remote(STEPS) for worker in workers])
        print("weights:", " ".join(f"{weight:+.2f}" for weight in weights[0]))
        print("all workers have the same:", all((each == weights[0]).all() for each in weights))


if __name__ == "__main__":
    main()
