"""Classifies noisy digits with a sharded parameter server: shards hold the weights, workers send gradients.

The digits are made on the spot: seven-segment digits, shifted, dimmed and with noise. First the workers go in
step, then each at its own pace, so a slow one holds nobody up.

Run it with `python examples/python/parameter_server.py`. It needs numpy.
"""

import time
from typing import Any

import numpy

import aktis
from aktis.train import ParameterServer
from aktis.train.parameter_server import SGD

WORKERS = 2
STEPS = 400
SHARDS = 2
HIDDEN = 32
SIDE = 9

#: Which segments are lit: top, upper left, upper right, middle, lower left, lower right, bottom.
SEGMENTS = [
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
]

Array = Any
Parameters = dict[str, Array]


def digits(count: int, seed: int) -> tuple[Array, Array]:
    """Pictures as rows of numbers, and which digits they show."""
    generator = numpy.random.default_rng(seed)
    labels = generator.integers(0, 10, count)
    images = numpy.zeros((count, SIDE, SIDE), dtype=numpy.float32)
    for image, label in zip(images, labels):
        row, column = generator.integers(0, 3, 2)
        strokes = [
            (slice(0, 1), slice(0, 5)),
            (slice(0, 4), slice(0, 1)),
            (slice(0, 4), slice(4, 5)),
            (slice(3, 4), slice(0, 5)),
            (slice(3, 7), slice(0, 1)),
            (slice(3, 7), slice(4, 5)),
            (slice(6, 7), slice(0, 5)),
        ]
        part = image[row : row + 7, column : column + 5]
        for (rows, columns), lit in zip(strokes, SEGMENTS[label]):
            if lit == "1":
                part[rows, columns] = generator.uniform(0.6, 1.0)
    images += generator.normal(0, 0.15, images.shape)
    return images.reshape(count, -1), labels


def start() -> Parameters:
    generator = numpy.random.default_rng(0)
    return {
        "hidden": generator.normal(0, 0.1, (SIDE * SIDE, HIDDEN)).astype(numpy.float32),
        "output": generator.normal(0, 0.1, (HIDDEN, 10)).astype(numpy.float32),
    }


def predict(parameters: Parameters, images: Array) -> tuple[Array, Array]:
    """What the hidden layer says, and the probabilities of the digits."""
    hidden = numpy.tanh(images @ parameters["hidden"])
    scores = hidden @ parameters["output"]
    exponentials = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)


def gradients(parameters: Parameters, images: Array, labels: Array) -> Parameters:
    """Of the cross entropy."""
    hidden, errors = predict(parameters, images)
    errors[numpy.arange(len(labels)), labels] -= 1
    errors /= len(labels)
    back = (errors @ parameters["output"].T) * (1 - hidden**2)
    return {"hidden": images.T @ back, "output": hidden.T @ errors}


@aktis.remote
def work(server: ParameterServer, worker: int, steps: int) -> None:
    """One worker: has data of its own, which never leaves it."""
    images, labels = digits(1_000, seed=worker + 1)
    generator = numpy.random.default_rng(worker)
    parameters = server.pull()
    for _ in range(steps):
        chosen = generator.integers(0, len(labels), 64)
        parameters = server.push_pull(gradients(parameters, images[chosen], labels[chosen]), worker)


def main() -> None:
    test_images, test_labels = digits(500, seed=99)
    with aktis.init(num_cpus=2):
        for mode in ("sync", "async"):
            server = ParameterServer(
                start(),
                num_shards=SHARDS,
                optimizer=SGD(0.1, momentum=0.9),
                mode=mode,
                num_workers=WORKERS if mode == "sync" else None,
            )
            began = time.perf_counter()
            aktis.get([work.remote(server, worker, STEPS) for worker in range(WORKERS)])
            seconds = time.perf_counter() - began
            _, probabilities = predict(server.pull(), test_images)
            right = (probabilities.argmax(axis=1) == test_labels).mean()
            print(f"{mode}: {server.step} steps in {seconds:.1f} s, {right:.0%} of new digits right")


if __name__ == "__main__":
    main()
