"""Population based training: four nets learn at once, and bad ones go on from the good ones' weights.

Each trial fits a noisy wave with a learning rate of its own, most of them far off. After every fifth epoch, a
trial of the worse half copies the weights of one of the better half, and changes its learning rate a little.
So the whole population finds good rates while it trains.

Run it with `python examples/python/tune_pbt.py`. It needs numpy.
"""

import os
import tempfile
from typing import Any

import numpy

import aktis
from aktis import tune
from aktis.tune.schedulers import PopulationBasedTraining

EPOCHS = 20
HIDDEN = 16


def wave(seed: int) -> tuple[Any, Any]:
    generator = numpy.random.default_rng(seed)
    xs = generator.uniform(-3, 3, (256, 1))
    return xs, numpy.sin(2 * xs) + generator.normal(0, 0.05, xs.shape)


def train(config: dict[str, Any]) -> None:
    """One trial. It starts from scratch, or from a checkpoint, which may be another trial's."""
    generator = numpy.random.default_rng(0)
    weights = [generator.normal(0, 1, (2, HIDDEN)), generator.normal(0, 0.1, (HIDDEN + 1, 1))]
    first = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            stored = numpy.load(os.path.join(folder, "weights.npz"))
        weights = [stored["a"], stored["b"]]
        first = int(stored["epoch"]) + 1
    xs, ys = wave(1)
    inputs = numpy.hstack([xs, numpy.ones_like(xs)])
    for epoch in range(first, EPOCHS):
        for _ in range(100):
            hidden = numpy.tanh(inputs @ weights[0])
            extended = numpy.hstack([hidden, numpy.ones_like(xs)])
            errors = extended @ weights[1] - ys
            back = (errors @ weights[1][:-1].T) * (1 - hidden**2)
            weights[0] = weights[0] - config["rate"] * inputs.T @ back / len(xs)
            weights[1] = weights[1] - config["rate"] * extended.T @ errors / len(xs)
        loss = float((errors**2).mean())
        with tempfile.TemporaryDirectory() as folder:
            numpy.savez(os.path.join(folder, "weights.npz"), a=weights[0], b=weights[1], epoch=epoch)
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report({"loss": loss, "rate": config["rate"]}, checkpoint=checkpoint)


def main() -> None:
    scheduler = PopulationBasedTraining(
        perturbation_interval=5,
        quantile_fraction=0.5,
        hyperparam_mutations={"rate": tune.loguniform(0.001, 0.5)},
        seed=4,
    )
    with aktis.init(num_cpus=2), tempfile.TemporaryDirectory() as storage:
        tuner = tune.Tuner(
            train,
            param_space={"rate": tune.grid_search([0.0001, 0.001, 0.01, 0.1])},
            tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler),
            run_config=tune.RunConfig(name="wave", storage_path=storage),
        )
        grid = tuner.fit()
        for result in grid:
            history = result.metrics_history
            rates = " ".join(f"{rate:.4f}" for rate in dict.fromkeys(row["rate"] for row in history))
            print(f"loss {history[0]['loss']:.3f} to {history[-1]['loss']:.3f}, rates {rates}")
        best = grid.get_best_result()
        assert best.checkpoint is not None and best.metrics is not None
        print(f"the best has {os.listdir(best.checkpoint.path).count('weights.npz')} file of weights")


if __name__ == "__main__":
    main()
