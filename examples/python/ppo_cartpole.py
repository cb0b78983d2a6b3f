"""Trains a policy for CartPole by PPO, saves it, loads it again and plays with it.

Run it with `python examples/python/ppo_cartpole.py`. Needs the packages of `pip install 'aktis[rl]'`.
"""

import argparse
import tempfile
from pathlib import Path

import gymnasium

import aktis.rl


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500_000, help="steps after which training ends")
    steps = parser.parse_args().steps

    with tempfile.TemporaryDirectory() as folder:
        # A built-in environment and a small network: no Python runs between the steps of a rollout.
        ppo = aktis.rl.PPO("CartPole-v1", seed=1, total_steps=steps, directory=folder)
        result = ppo.train()
        print(f"{result.steps:,} steps in {result.seconds:.1f} s: mean return {result.mean_return:.0f}")

        trained = aktis.rl.load(Path(folder) / "checkpoint.aktis")
    print(f"evaluated over 100 episodes: {trained.evaluate(100).mean:.0f}")

    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=1)
    points, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = environment.step(trained.act(observation))
        points, done = points + float(reward), terminated or truncated
    print(f"one episode in Gymnasium's own CartPole: {points:.0f} points")


if __name__ == "__main__":
    main()
