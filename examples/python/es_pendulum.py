"""Swings a pendulum up by evolution strategies, without gradients: actors play with perturbed policies.

Actors send returns only; the noise is derived from seeds on each side. Their weighted sums go through a tree
of aggregators, so the driver receives one vector however many actors there are.

Run it with `python examples/python/es_pendulum.py`. Needs the packages of `pip install 'aktis[rl]'`.
"""

import argparse

import aktis
import aktis.rl


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000_000, help="steps after which training ends")
    steps = parser.parse_args().steps

    with aktis.init(num_cpus=2):
        es = aktis.rl.ES("Pendulum-v1", seed=1, actors=4, fan_in=2, total_steps=steps)
        result = es.train()
        print(f"{result.iterations} generations, {result.steps:,} steps, {result.seconds:.1f} s")
        print(f"target of {es.config.target_return:.0f} reached: {result.solved}")
        print(f"evaluated over 500 episodes: {es.evaluate(500).mean:.0f}")


if __name__ == "__main__":
    main()
