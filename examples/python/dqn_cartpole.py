"""Trains a policy for CartPole by DQN: action values, learnt from a buffer of past steps.

Run it with `python examples/python/dqn_cartpole.py`. Needs the packages of `pip install 'aktis[rl]'`.
"""

import argparse

import aktis.rl


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300_000, help="steps after which training ends")
    steps = parser.parse_args().steps

    dqn = aktis.rl.DQN("CartPole-v1", seed=1, total_steps=steps)

    def report(dqn: aktis.rl.DQN) -> None:
        if dqn.iteration % 20 == 0:
            print(f"step {dqn.steps:6,}: return {dqn.mean_return:.0f}, {dqn.epsilon:.0%} random actions")

    result = dqn.train(callback=report)
    print(f"{result.steps:,} steps in {result.seconds:.1f} s; target reached: {result.solved}")
    print(f"evaluated over 100 episodes: {dqn.evaluate(100).mean:.0f}")


if __name__ == "__main__":
    main()
