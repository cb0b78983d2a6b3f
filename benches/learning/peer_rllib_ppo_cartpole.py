"""RLlib's PPO on CartPole-v1 with settings tuned for it, until 100 episodes have a mean of 475.

It is measured as `aktis.rl` is: without imports, and by the returns of training episodes. After `--seconds`
the run counts as not solved.
"""

import argparse
import json
import logging
import time

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

TARGET, EPISODES = 475.0, 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", type=int, required=True, metavar="SEED")
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    began = time.perf_counter()
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=1, num_envs_per_env_runner=8)
        .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01, minibatch_size=128, train_batch_size=4000)
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True
            )
        )
        .reporting(metrics_num_episodes_for_smoothing=EPISODES)
        .debugging(seed=given.one, log_level="ERROR")
    )
    algorithm = config.build_algo()
    solved, steps, mean = False, 0, 0.0
    while not solved and time.perf_counter() - began < given.seconds:
        result = algorithm.train()
        runners = result["env_runners"]
        steps = int(runners["num_env_steps_sampled_lifetime"])
        mean = float(runners.get("episode_return_mean", 0.0))
        solved = mean >= TARGET
    seconds = time.perf_counter() - began
    algorithm.stop()
    ray.shutdown()
    found = {"seed": given.one, "solved": solved, "seconds": seconds, "steps": steps, "greedy": mean}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
