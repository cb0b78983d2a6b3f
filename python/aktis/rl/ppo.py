"""PPO: proximal policy optimisation (Schulman et al., 2017), with generalised advantage estimation.

Each iteration runs the policy for `rollout_steps` steps in all environments, estimates advantages, and takes
several passes of minibatch gradient steps on the clipped objective.
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import torch

from aktis.rl.algorithm import Algorithm
from aktis.rl.config import Config, setting
from aktis.rl.environments import Spaces
from aktis.rl.models import ACTIVATIONS, ActorCritic, Policy
from aktis.rl.optimizer import Adam
from aktis.rl.samplers import valid_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(Config):
    """Settings of PPO."""

    num_envs: int = setting(16, "environments that run side by side", low=1)
    actors: int | None = setting(
        None, "actors that run them; 0: this process; None: 0 for built-in environments, else 2", low=0
    )
    rollout_steps: int = setting(128, "steps of each environment per iteration", low=1)
    minibatch_size: int = setting(256, "steps per gradient step", low=1)
    epochs: int = setting(10, "passes over the steps of an iteration", low=1)
    learning_rate: float = setting(3e-4, "step size of Adam", above=0)
    gamma: float = setting(0.99, "discount factor", low=0, high=1)
    gae_lambda: float = setting(0.95, "weight of long returns in advantages", low=0, high=1)
    clip_range: float = setting(0.2, "how far a probability ratio may move", above=0)
    target_kl: float | None = setting(
        None, "an iteration makes no more passes once its policy has moved this far; None: no bound", above=0
    )
    value_coefficient: float = setting(0.5, "weight of the value loss", low=0)
    entropy_coefficient: float = setting(0.0, "weight of the entropy bonus", low=0)
    gradient_norm_max: float = setting(0.5, "gradients are scaled down to this norm", above=0)
    reward_scale: float = setting(1.0, "factor on rewards while learning", above=0)
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers", low=1)
    activation: str = setting("tanh", "between layers", choices=tuple(ACTIVATIONS))
    initial_std: float = setting(1.0, "standard deviation of continuous actions at first", above=0)


class PPO(Algorithm):
    """Proximal policy optimisation.

        ppo = aktis.rl.PPO("CartPole-v1", seed=1)
        print(ppo.train().solved)

    Actions may be discrete or continuous.
    """

    name = "ppo"
    config_type = PPOConfig
    critic = True
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "CartPole-v1": {
            "total_steps": 500_000,
            "target_return": 475.0,
            "num_envs": 16,
            "rollout_steps": 32,
            "minibatch_size": 256,
            "epochs": 4,
            "learning_rate": 3e-3,
            "gamma": 0.98,
            "gae_lambda": 0.9,
        },
        "Pendulum-v1": {
            "total_steps": 1_000_000,
            "target_return": -200.0,
            "num_envs": 16,
            # Whole episodes: with parts of them, one seed in five never learned to swing up.
            "rollout_steps": 200,
            "minibatch_size": 400,
            "epochs": 10,
            "learning_rate": 1e-3,
            "gamma": 0.9,
            "gae_lambda": 0.95,
            "reward_scale": 0.1,
        },
    }
    columns = (
        *("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"),
        *("explained_variance", "learning_rate"),
    )

    @classmethod
    def default_model(cls, config: Any, spaces: Spaces) -> ActorCritic:
        return ActorCritic(spaces, config.hidden, config.activation, config.initial_std)

    def _setup(self, model: Any) -> Policy:
        config = self.config
        policy = self._make_policy(model)
        parameters = list(policy.module.parameters())
        self.optimizer = Adam(parameters, epsilon=1e-5, norm_max=config.gradient_norm_max)
        self.shuffler = np.random.default_rng(self._seed("shuffle"))
        return policy

    def _iterate(self) -> dict[str, Any]:
        config = self.config
        remaining = self._remaining()
        rate = config.learning_rate * remaining
        sampler = self._open_sampler(config.num_envs, config.actors)
        batch = sampler.collect(config.rollout_steps, sampler.weights_of(self.policy))
        self._count(batch)
        advantages, targets = gae(
            batch["rewards"] * config.reward_scale,
            batch["values"],
            batch["next_values"],
            batch["terminations"] | batch["truncations"],
            config.gamma,
            config.gae_lambda,
        )
        kept = valid_rows(batch)
        steps = [
            torch.from_numpy(np.ascontiguousarray(array).reshape(-1, *array.shape[2:])[kept])
            for array in (batch["observations"], batch["actions"], batch["log_probs"], advantages, targets)
        ]
        figures = self._learn(steps, len(steps[0]), rate, config.clip_range * remaining)
        variance = explained_variance(batch["values"].reshape(-1)[kept], targets.reshape(-1)[kept])
        return figures | {"explained_variance": variance, "learning_rate": rate}

    def _learn(self, steps: list[Any], size: int, rate: float, clip: float) -> dict[str, Any]:
        config = self.config
        policy = self.policy
        totals = torch.zeros(5)
        updates = 0
        moved = False
        for _ in range(config.epochs):
            if moved:
                break
            order = torch.from_numpy(self.shuffler.permutation(size))
            shuffled = [array[order] for array in steps]
            for start in range(0, size, config.minibatch_size):
                rows = slice(start, start + config.minibatch_size)
                observations, actions, old_log_probs, advantage, target = (array[rows] for array in shuffled)
                if len(advantage) > 1:
                    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                outputs, values = policy.outputs(observations)
                log_probs, entropy = policy.evaluate(outputs, actions)
                log_ratio = log_probs - old_log_probs
                ratio = log_ratio.exp()
                bounded = ratio.clamp(1 - clip, 1 + clip)
                policy_loss = -torch.minimum(ratio * advantage, bounded * advantage).mean()
                value_loss = torch.nn.functional.mse_loss(values, target)
                mean_entropy = entropy.mean()
                loss = (
                    policy_loss
                    + config.value_coefficient * value_loss
                    - config.entropy_coefficient * mean_entropy
                )
                self.optimizer.minimize(loss, rate)
                updates += 1
                with torch.no_grad():
                    clipped = (ratio != bounded).float().mean()
                    # The estimate of the divergence that has the least variance (Schulman, 2020).
                    kl = (ratio - 1 - log_ratio).mean()
                    totals += torch.stack((policy_loss, value_loss, mean_entropy, clipped, kl))
                moved = config.target_kl is not None and kl.item() > config.target_kl
                if moved:
                    break
        policy_mean, value_mean, entropy_mean, clip_mean, kl_mean = (totals / max(updates, 1)).tolist()
        return {
            "loss": policy_mean
            + config.value_coefficient * value_mean
            - config.entropy_coefficient * entropy_mean,
            "policy_loss": policy_mean,
            "value_loss": value_mean,
            "entropy": entropy_mean,
            "clip_fraction": clip_mean,
            "approx_kl": kl_mean,
        }

    def _state(self) -> dict[str, Any]:
        return {
            "model": dict(self.policy.module.state_dict()),
            "optimizer": self.optimizer.state(),
            "shuffler": self.shuffler.bit_generator.state,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.policy.module.load_state_dict(state["model"])
        self.optimizer.set_state(state["optimizer"])
        self.shuffler.bit_generator.state = state["shuffler"]


def gae(
    rewards: Any, values: Any, next_values: Any, ends: Any, gamma: float, gae_lambda: float
) -> tuple[Any, Any]:
    """Advantages and targets of the value function, [steps, environments].

    `next_values` is the value of each step's true successor: 0 after a termination, and the value of the last
    observation after a truncation. `ends` cuts the sum over later steps.
    """
    errors = rewards + gamma * next_values - values
    decay = (gamma * gae_lambda) * (1 - ends.astype(np.float32))
    advantages = np.empty_like(errors, dtype=np.float32)
    following = np.zeros(errors.shape[1], np.float32)
    for step in range(len(errors) - 1, -1, -1):
        following = errors[step] + decay[step] * following
        advantages[step] = following
    return advantages, (advantages + values).astype(np.float32)


def explained_variance(values: Any, targets: Any) -> float | None:
    """How much of the targets' variance the values foretell: 1 is all of it; None where there is none."""
    variance = float(np.var(targets)) if len(targets) else 0.0
    return 1 - float(np.var(targets - values)) / variance if variance > 0 else None
