"""Trained policies that act: without the environment, without what trains them, and without a session."""

import dataclasses
from typing import Any

import numpy as np

from aktis.rl.environments import Spaces
from aktis.rl.errors import SpaceError
from aktis.rl.models import Policy


class TrainedPolicy:
    """A policy from a checkpoint; `aktis.rl.load_policy` reads it.

        policy = aktis.rl.load_policy("run/checkpoint.aktis")
        action = policy.act(observation)

    It can be pickled, so an actor can hold it and answer requests.
    """

    def __init__(self, environment: str, policy: Policy) -> None:
        #: The name of the environment in which it was trained.
        self.environment = environment
        self._policy = policy

    @property
    def module(self) -> Any:
        """The `torch.nn.Module`."""
        return self._policy.module

    @property
    def spaces(self) -> Spaces:
        """What the policy sees and decides."""
        return self._policy.spaces

    def act(self, observation: Any, *, greedy: bool = True) -> Any:
        """The action for one observation, or those for a batch of them, as the environment takes them.

        The likeliest action, or with `greedy=False` one that is drawn, with the generator of torch.
        """
        return act(self._policy, self.environment, observation, greedy)

    def __repr__(self) -> str:
        return f"TrainedPolicy({self.environment}, {self.module.__class__.__name__})"


def act(policy: Policy, environment: str, observation: Any, greedy: bool) -> Any:
    """The actions of a policy for one observation or a batch of them, in the form of the action space."""
    spaces = policy.spaces
    observations, single = _batch(spaces, environment, observation)
    mode = "greedy" if greedy or not policy.critic else "sample"
    actions, _, _ = policy.act(observations, mode, None)
    if spaces.discrete:
        actions = actions + spaces.action_start
        return int(actions[0]) if single else actions
    shaped = actions.reshape(-1, *spaces.action_shape)
    clipped = np.clip(shaped, spaces.action_low, spaces.action_high).astype(spaces.action_low.dtype)
    return clipped[0] if single else clipped


def _batch(spaces: Spaces, environment: str, observation: Any) -> tuple[Any, bool]:
    """The observations as rows of numbers, and whether it is a single one."""
    discrete = spaces.observation_values is not None
    shape = () if discrete else spaces.observation_shape
    try:
        array = np.asarray(observation, np.int64 if discrete else np.float32)
    except (TypeError, ValueError) as error:
        raise SpaceError(
            f"an observation of {environment} must be numbers, got {observation!r:.80}"
            "\nhint: give what reset or step of the environment returns first"
        ) from error
    if array.shape not in (shape, (*array.shape[:1], *shape)):
        raise SpaceError(
            f"an observation of {environment} has shape {shape}, got {array.shape}"
            "\nhint: give one observation, or a batch of them along the first dimension"
        )
    single = array.shape == shape
    if not discrete:
        return array.reshape(1 if single else len(array), -1), single
    places = array.reshape(-1) - spaces.observation_start
    values = spaces.observation_values or 0
    if ((places < 0) | (places >= values)).any():
        raise SpaceError(
            f"an observation of {environment} is a whole number from {spaces.observation_start} to "
            f"{spaces.observation_start + values - 1}, got {observation!r:.80}"
            "\nhint: give what reset or step of the environment returns first"
        )
    return np.eye(values, dtype=np.float32)[places], single


def spaces_as_dict(spaces: Spaces) -> dict[str, Any]:
    """The spaces for a checkpoint."""
    return dataclasses.asdict(spaces)


def spaces_from_dict(saved: dict[str, Any]) -> Spaces:
    """What `spaces_as_dict` gave, after it was in a checkpoint."""
    shapes = {name: tuple(saved[name]) for name in ("observation_shape", "action_shape")}
    return Spaces(**{**saved, **shapes})
