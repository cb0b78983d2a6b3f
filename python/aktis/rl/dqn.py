"""DQN: deep Q-learning (Mnih et al., 2015), with double estimation (van Hasselt et al., 2016).

Each iteration runs an epsilon-greedy policy for `rollout_steps` steps in all environments, puts the
transitions into a replay buffer, and takes `gradient_steps` steps on random transitions of the buffer.
"""

import copy
import dataclasses
import os
from typing import Any, ClassVar

import numpy as np
import torch

from aktis.rl.algorithm import Algorithm
from aktis.rl.config import Config, setting
from aktis.rl.environments import Spaces
from aktis.rl.errors import ConfigError, SpaceError
from aktis.rl.models import ACTIVATIONS, Network, Policy
from aktis.rl.optimizer import Adam
from aktis.rl.samplers import valid_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(Config):
    """Settings of DQN."""

    num_envs: int = setting(8, "environments that run side by side", low=1)
    actors: int | None = setting(
        None, "actors that run them; 0: this process; None: 0 for built-in environments, else 2", low=0
    )
    rollout_steps: int = setting(32, "steps of each environment per iteration", low=1)
    gradient_steps: int = setting(64, "gradient steps per iteration", low=1)
    batch_size: int = setting(64, "transitions per gradient step", low=1)
    buffer_size: int = setting(100_000, "transitions that the replay buffer holds", low=1)
    learning_starts: int = setting(1_000, "steps before the first gradient step", low=0)
    learning_rate: float = setting(1e-3, "step size of Adam", above=0)
    gamma: float = setting(0.99, "discount factor", low=0, high=1)
    target_interval: int = setting(100, "gradient steps between copies to the target network", low=1)
    epsilon_start: float = setting(1.0, "share of random actions at first", low=0, high=1)
    epsilon_end: float = setting(0.05, "share of random actions later", low=0, high=1)
    exploration_steps: int = setting(10_000, "steps over which that share falls", low=1)
    gradient_norm_max: float = setting(10.0, "gradients are scaled down to this norm", above=0)
    reward_scale: float = setting(1.0, "factor on rewards while learning", above=0)
    hidden: tuple[int, ...] = setting((128, 128), "sizes of the hidden layers", low=1)
    activation: str = setting("relu", "between layers", choices=tuple(ACTIVATIONS))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffer_size < self.num_envs * self.rollout_steps:
            raise ConfigError(
                f"DQNConfig.buffer_size must hold the {self.num_envs * self.rollout_steps} transitions of an "
                f"iteration (num_envs times rollout_steps), got {self.buffer_size}"
                "\nhint: raise buffer_size, or lower num_envs or rollout_steps"
            )


class DQN(Algorithm):
    """Deep Q-learning, for environments with discrete actions.

    dqn = aktis.rl.DQN("CartPole-v1", seed=1)
    print(dqn.train().evaluation_return)
    """

    name = "dqn"
    config_type = DQNConfig
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "CartPole-v1": {
            "total_steps": 300_000,
            "target_return": 475.0,
            "evaluation_interval": 2_560,
            "learning_rate": 1e-3,
            "target_interval": 50,
        },
    }
    columns = ("loss", "epsilon", "mean_q", "buffered", "learning_rate")

    @classmethod
    def default_model(cls, config: Any, spaces: Spaces) -> Network:
        return Network(spaces, config.hidden, config.activation, gain=1.0)

    def _setup(self, model: Any) -> Policy:
        config = self.config
        if not self.spaces.discrete:
            raise SpaceError(
                f"dqn needs discrete actions, and those of {self.environment.name} are continuous"
                "\nhint: use aktis.rl.PPO or aktis.rl.ES"
            )

        policy = self._make_policy(model)
        self.target = Policy(self.name, copy.deepcopy(policy.module), self.spaces, critic=False)
        self.optimizer = Adam(list(policy.module.parameters()), norm_max=config.gradient_norm_max)
        kind = np.uint8 if self.spaces.observation_bytes else np.float32
        try:
            self.buffer = ReplayBuffer(config.buffer_size, self.spaces.observation_size, kind)
        except MemoryError as error:
            raise ConfigError(
                f"there is no memory for DQNConfig.buffer_size={config.buffer_size} transitions of "
                f"{self.environment.name}: {error}\nhint: lower buffer_size"
            ) from error
        self.random = np.random.default_rng(self._seed("replay"))
        self.updates = 0
        return policy

    @property
    def epsilon(self) -> float:
        """The share of random actions now."""
        config = self.config
        progress = min(1.0, self.steps / config.exploration_steps)
        return float(config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start))

    def _iterate(self) -> dict[str, Any]:
        config = self.config
        epsilon = self.epsilon
        rate = config.learning_rate * self._remaining()
        sampler = self._open_sampler(config.num_envs, config.actors)
        batch = sampler.collect(
            config.rollout_steps, sampler.weights_of(self.policy), "epsilon_greedy", epsilon, with_next=True
        )
        self._count(batch)
        self.buffer.add(
            batch["observations"],
            batch["actions"],
            batch["rewards"] * config.reward_scale,
            batch["next_observations"],
            batch["terminations"],
            valid_rows(batch),
        )
        figures = {"epsilon": epsilon, "buffered": self.buffer.size}
        if self.steps < config.learning_starts:
            return figures | {"loss": None, "mean_q": None}
        return figures | self._learn(rate) | {"learning_rate": rate}

    def _learn(self, rate: float) -> dict[str, Any]:
        config = self.config
        count, batch = config.gradient_steps, config.batch_size
        drawn = self.random.integers(self.buffer.size, size=count * batch)
        columns = [torch.from_numpy(column[drawn]) for column in self.buffer.columns]
        totals = torch.zeros(2)
        for start in range(0, count * batch, batch):
            observations, actions, rewards, successors, discounts = (
                column[start : start + batch] for column in columns
            )
            observations, successors = observations.float(), successors.float()
            with torch.no_grad():
                # The online network chooses the action, the target network says what it is worth.
                chosen = self.policy.outputs(successors)[0].argmax(-1, keepdim=True)
                worth = self.target.outputs(successors)[0].gather(-1, chosen).squeeze(-1)
                wanted = rewards + config.gamma * discounts * worth
            values = self.policy.outputs(observations)[0].gather(-1, actions.unsqueeze(-1)).squeeze(-1)
            loss = torch.nn.functional.smooth_l1_loss(values, wanted)
            self.optimizer.minimize(loss, rate)
            self.updates += 1
            if self.updates % config.target_interval == 0:
                self.target.module.load_state_dict(self.policy.module.state_dict())
            with torch.no_grad():
                totals += torch.stack((loss, values.mean()))
        mean_loss, mean_q = (totals / count).tolist()
        return {"loss": mean_loss, "mean_q": mean_q}

    def _state(self) -> dict[str, Any]:
        return {
            "model": dict(self.policy.module.state_dict()),
            "target": dict(self.target.module.state_dict()),
            "optimizer": self.optimizer.state(),
            "random": self.random.bit_generator.state,
            "updates": self.updates,
            "buffer": self.buffer.state(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.policy.module.load_state_dict(state["model"])
        self.target.module.load_state_dict(state["target"])
        self.optimizer.set_state(state["optimizer"])
        self.random.bit_generator.state = state["random"]
        self.updates = state["updates"]
        self.buffer.set_state(state["buffer"])


class ReplayBuffer:
    """The latest transitions, in arrays that are written round and round."""

    def __init__(self, capacity: int, observation_size: int, kind: Any = np.float32) -> None:
        # Pages come at the first touch, so an array that does not fit would be noticed hours later.
        needed = 2 * capacity * observation_size * np.dtype(kind).itemsize
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > present:
            raise MemoryError(f"they take {needed / 1e9:.1f} GB, and this machine has {present / 1e9:.1f} GB")
        self.capacity = capacity
        self.size = 0
        self.position = 0
        #: Observations, actions, rewards, successors, and 0 where the episode terminated, else 1.
        self.columns: Any = (
            np.zeros((capacity, observation_size), kind),
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.float32),
            np.zeros((capacity, observation_size), kind),
            np.zeros(capacity, np.float32),
        )

    def add(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        successors: Any,
        terminations: Any,
        kept: Any = slice(None),
    ) -> None:
        """Adds the rows `kept` of a batch [steps, environments, ...]; the oldest transitions make room."""
        added = [
            values.reshape(-1, *values.shape[2:])[kept]
            for values in (observations, actions, rewards, successors, 1 - terminations.astype(np.float32))
        ]
        count = len(added[0])
        places: Any = (self.position + np.arange(count)) % self.capacity
        for column, values in zip(self.columns, added):
            column[places] = values
        self.position = (self.position + count) % self.capacity
        self.size = min(self.capacity, self.size + count)

    def state(self) -> dict[str, Any]:
        """For checkpoints; holds the filled part only."""
        return {"position": self.position, "columns": [column[: self.size] for column in self.columns]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes over what `state` gave."""
        self.size = len(state["columns"][0])
        self.position = state["position"]
        for column, values in zip(self.columns, state["columns"]):
            column[: self.size] = values
