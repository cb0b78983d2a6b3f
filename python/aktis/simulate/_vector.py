"""Vector environments: built-in ones as Gymnasium's type, and one that remembers a seed."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from aktis.simulate._builtin import NativeBatch
from aktis.simulate._checks import checked_seed


def spaces_of(native: Any) -> tuple[Any, Any]:
    """The spaces of one environment: of observations and of actions."""
    low, high, choices, action_low, action_high = native.spaces()
    observation = spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)
    if choices is not None:
        return observation, spaces.Discrete(choices)
    bounds = np.array(action_low, np.float32), np.array(action_high, np.float32)
    return observation, spaces.Box(*bounds, dtype=np.float32)


class BuiltinVectorEnv(VectorEnv):  # type: ignore[misc]
    """Built-in environments that are stepped together, in Rust. `make_vec` makes it."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        seed: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        if mode == AutoresetMode.DISABLED:
            raise ValueError(
                "built-in environments begin again by themselves, and autoreset_mode is DISABLED\n"
                "hint: use NEXT_STEP or SAME_STEP, or Gymnasium's own environment (vectorization_mode='sync')"
            )
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._seed: int | None = checked_seed(seed)
        self._native = NativeBatch(env_id, num_envs, self._seed, self._same_step)
        self.num_envs = num_envs
        self.env_id = env_id
        self.single_observation_space, self.single_action_space = spaces_of(self._native)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": mode, "render_modes": []}
        self.render_mode = None
        self.spec = None
        self._discrete = isinstance(self.single_action_space, spaces.Discrete)

    @property
    def max_episode_steps(self) -> int:
        """Episodes are truncated after this many steps."""
        return self._native.steps_max

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begins all episodes again; with a seed, as if the environments were new."""
        if options:
            raise ValueError(
                f"built-in environments take no options at reset, got {options!r}\n"
                "hint: set states with set_states, or use Gymnasium's own environment"
            )
        if seed is not None:
            self._seed = checked_seed(seed)
        super().reset(seed=self._seed)
        observations = self._new_observations()
        self._native.reset(self._seed, observations)
        self._seed = None
        return observations, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all environments: observations, rewards, terminations, truncations and infos."""
        choices, numbers = None, None
        if self._discrete:
            choices = _integers(actions)
        else:
            numbers = np.array(actions, np.float32, order="C")
        observations = self._new_observations()
        rewards: Any = np.empty(self.num_envs, np.float64)
        terminated: Any = np.empty(self.num_envs, np.bool_)
        truncated: Any = np.empty(self.num_envs, np.bool_)
        ended, _, _ = self._native.step(
            choices, numbers, observations, rewards, terminated.view(np.uint8), truncated.view(np.uint8)
        )
        infos: dict[str, Any] = {}
        if self._same_step and ended:
            rows = np.array(self._native.final_observations(), np.float32).reshape(len(ended), -1)
            for index, row in zip(ended, rows):
                infos = self._add_info(infos, {"final_obs": row, "final_info": {}}, index)
        return observations, rewards, terminated, truncated, infos

    def states(self) -> Any:
        """The states of the environments, `[num_envs, numbers]`: what observations are computed from."""
        return np.array(self._native.states(), np.float64).reshape(self.num_envs, -1)

    def set_states(self, states: Any) -> Any:
        """Puts the environments into these states, each at the start of an episode; returns observations."""
        observations = self._new_observations()
        self._native.set_states(np.array(states, np.float64, order="C"), observations)
        return observations

    def _new_observations(self) -> Any:
        return np.empty((self.num_envs, *self.single_observation_space.shape), np.float32)

    def __repr__(self) -> str:
        return f"BuiltinVectorEnv({self.env_id}, num_envs={self.num_envs})"


def _integers(actions: Any) -> Any:
    """The actions as a fresh array of integers."""
    array = np.asarray(actions)
    if array.dtype.kind not in "iub":
        raise TypeError(
            f"actions must be integers, got an array of {array.dtype}"
            "\nhint: convert them by `actions.astype(np.int64)`"
        )
    return np.array(array, np.int64, order="C")


class SeededVectorEnv(VectorWrapper):  # type: ignore[misc]
    """Gymnasium's own environments whose first `reset` uses a seed that was given earlier."""

    def __init__(self, envs: Any, seed: int) -> None:
        super().__init__(envs)
        self._seed: int | None = checked_seed(seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begins all episodes again."""
        seed, self._seed = (self._seed if seed is None else seed), None
        result: tuple[Any, Any] = self.env.reset(seed=seed, options=options)
        return result
