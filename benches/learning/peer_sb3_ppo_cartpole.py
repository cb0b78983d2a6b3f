"""Stable-Baselines3's PPO on CartPole-v1 with the settings of RL Zoo, until 100 episodes have a mean of 475.

It is measured as `aktis.rl` is: without imports, and by the returns of training episodes. The settings give
it 100,000 steps, after which its learning rate is 0; if that is not enough, the run counts as not solved.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

TARGET, EPISODES = 475.0, 100


class StopAtTarget(BaseCallback):  # type: ignore[misc]
    """Ends training when the latest episodes reach the target."""

    solved = False

    def _on_step(self) -> bool:
        buffer: Any = self.model.ep_info_buffer
        if len(buffer) == EPISODES and np.mean([episode["r"] for episode in buffer]) >= TARGET:
            self.solved = True
        return not self.solved


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", type=int, required=True, metavar="SEED")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    began = time.perf_counter()
    environments = make_vec_env("CartPole-v1", n_envs=8, seed=given.one)
    model = PPO(
        "MlpPolicy",
        environments,
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda remaining: remaining * 0.001,
        clip_range=lambda remaining: remaining * 0.2,
        seed=given.one,
        device="cpu",
    )
    stop = StopAtTarget()
    model.learn(100_000, callback=stop)
    seconds = time.perf_counter() - began
    greedy, _ = evaluate_policy(model, environments, n_eval_episodes=20)
    found = {"seed": given.one, "solved": stop.solved, "seconds": seconds, "steps": model.num_timesteps}
    print(json.dumps(found | {"greedy": float(greedy)}))


if __name__ == "__main__":
    main()
