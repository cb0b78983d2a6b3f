"""Trains a policy for CartPole by IMPALA: actors play, and a learner takes what they bring as it comes.

The actors never wait for each other or for the learner, so their weights are a little old. V-trace corrects
for that.

Run it with `python examples/python/impala_cartpole.py`. Needs the packages of `pip install 'aktis[rl]'`.
"""

import argparse

import aktis
import aktis.rl


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3_000_000, help="steps after which training ends")
    steps = parser.parse_args().steps

    with aktis.init(num_cpus=2):
        impala = aktis.rl.IMPALA("CartPole-v1", seed=1, actors=2, total_steps=steps)
        result = impala.train()
        rate = result.steps / result.seconds
        print(f"{result.steps:,} steps in {result.seconds:.1f} s, {rate:,.0f} steps/s")
        print(f"mean return {result.mean_return:.0f}; target reached: {result.solved}")
        print(f"evaluated over 100 episodes: {impala.evaluate(100).mean:.0f}")


if __name__ == "__main__":
    main()
