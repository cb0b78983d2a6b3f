"""Models: small networks of torch, and the policy that makes actions from what a model returns.

What a model returns for observations of shape [batch, *observation_shape]:

    algorithm     actions      returns
    PPO, IMPALA   Discrete     (logits [batch, actions], values [batch])
    PPO, IMPALA   Box          (means [batch, numbers], values [batch]), and `model.log_std` [numbers]
    DQN           Discrete     action values [batch, actions]
    ES            Discrete     logits [batch, actions]
    ES            Box          actions [batch, numbers]
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from aktis.rl.environments import Spaces
from aktis.rl.errors import ModelError

ACTIVATIONS: dict[str, Callable[[], Any]] = {"tanh": nn.Tanh, "relu": nn.ReLU}

#: Layers of a network as `aktis.simulate` takes them: pairs of weight [out, in] and bias [out].
Layers = list[tuple[Any, Any]]

_LOG_2_PI = math.log(2 * math.pi)


def mlp(sizes: list[int], activation: str, gain: float) -> Any:
    """Linear layers with an activation between them; orthogonal weights, with `gain` for the last layer."""
    layers: list[Any] = []
    for index, (before, after) in enumerate(itertools.pairwise(sizes)):
        last = index == len(sizes) - 2
        linear = nn.Linear(before, after)
        nn.init.orthogonal_(linear.weight, gain if last else math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, ACTIVATIONS[activation]()]
    return nn.Sequential(*layers)


def layers_of(network: Any) -> Layers:
    """The weights of a network that `mlp` made, as arrays that share its memory."""
    linears = [layer for layer in network if isinstance(layer, nn.Linear)]
    return [(linear.weight.detach().numpy(), linear.bias.detach().numpy()) for linear in linears]


class ActorCritic(nn.Module):  # type: ignore[misc]
    """Two networks without shared layers: one for actions, one for values."""

    def __init__(self, spaces: Spaces, hidden: tuple[int, ...], activation: str, initial_std: float) -> None:
        super().__init__()
        size = spaces.observation_size
        self.activation = activation
        self.actor = mlp([size, *hidden, spaces.action_size], activation, gain=0.01)
        self.critic = mlp([size, *hidden, 1], activation, gain=1.0)
        if not spaces.discrete:
            self.log_std = nn.Parameter(torch.full((spaces.action_size,), math.log(initial_std)))

    def forward(self, observations: Any) -> tuple[Any, Any]:
        flat = observations.flatten(1)
        return self.actor(flat), self.critic(flat).squeeze(-1)


class Network(nn.Module):  # type: ignore[misc]
    """One network: action values for DQN, logits or actions for ES."""

    def __init__(self, spaces: Spaces, hidden: tuple[int, ...], activation: str, gain: float) -> None:
        super().__init__()
        self.activation = activation
        self.actor = mlp([spaces.observation_size, *hidden, spaces.action_size], activation, gain)

    def forward(self, observations: Any) -> Any:
        return self.actor(observations.flatten(1))


class Policy:
    """A model with the spaces that it acts in. Observations are flat: [batch, observation_size]."""

    def __init__(self, name: str, module: Any, spaces: Spaces, *, critic: bool) -> None:
        self.name = name
        self.module = module
        self.spaces = spaces
        self.critic = critic
        self._shape = (-1, *spaces.observation_shape)

    @property
    def native(self) -> bool:
        """Whether `aktis.simulate` can compute the forward pass."""
        return type(self.module) in (ActorCritic, Network)

    def outputs(self, observations: Any) -> tuple[Any, Any]:
        """Logits, means or action values, and the values of states or None."""
        if not self.native:
            observations = observations.view(self._shape)
        returned = self.module(observations)
        return returned if self.critic else (returned, None)

    def check(self) -> None:
        """ModelError unless the model returns what its algorithm needs."""
        batch = 3
        observations = torch.zeros(batch, self.spaces.observation_size)
        try:
            with torch.no_grad():
                returned = self.module(observations.view(self._shape))
        except Exception as error:
            raise ModelError(
                f"{self.name}: the model raised {type(error).__name__} for observations of shape "
                f"{(batch, *self.spaces.observation_shape)}: {error}"
                "\nhint: observations come as float32, the batch first"
            ) from error
        wanted = (batch, self.spaces.action_size)
        if self.critic:
            if not (isinstance(returned, tuple) and len(returned) == 2):
                raise ModelError(
                    f"{self.name}: the model must return a pair (action outputs, values), "
                    f"got {_described(returned)}"
                    "\nhint: return (outputs, values), with one value per observation"
                )
            outputs, values = returned
            if not isinstance(values, torch.Tensor) or tuple(values.shape) != (batch,):
                raise ModelError(
                    f"{self.name}: the model must return one value per observation, shape {(batch,)}, "
                    f"got {_described(values)}\nhint: squeeze the last dimension: values.squeeze(-1)"
                )
            if not self.spaces.discrete:
                log_std = getattr(self.module, "log_std", None)
                if log_std is None or tuple(log_std.shape) != wanted[1:]:
                    raise ModelError(
                        f"{self.name}: a model for continuous actions needs an attribute log_std of shape "
                        f"{wanted[1:]}, got {_described(log_std)}"
                        f"\nhint: self.log_std = torch.nn.Parameter(torch.zeros({wanted[1]}))"
                    )
        else:
            outputs = returned
        if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != wanted:
            raise ModelError(
                f"{self.name}: the model must return {wanted[1]} outputs per observation, shape {wanted}, "
                f"got {_described(outputs)}"
                "\nhint: let the last layer have as many outputs as spaces.action_size"
            )
        self.check_finite(outputs)

    def check_finite(self, outputs: Any) -> None:
        """ModelError if the model has returned NaN or infinity."""
        if not torch.isfinite(outputs).all():
            raise ModelError(
                f"{self.name}: the model returned {_first_odd(outputs)} instead of a finite number"
                "\nhint: lower the learning rate, and look for divisions and logarithms in the model"
            )

    def act(self, observations: Any, mode: str, generator: Any, epsilon: float = 0.0) -> tuple[Any, Any, Any]:
        """Actions, their log-probabilities or None, and values or None, as arrays.

        `mode` is "sample", "greedy" or "epsilon_greedy".
        """
        with torch.no_grad():
            outputs, values = self.outputs(torch.from_numpy(observations))
            self.check_finite(outputs)
            log_probs = None
            if mode == "greedy" or mode == "epsilon_greedy":
                actions = outputs.argmax(-1) if self.spaces.discrete else outputs
                if mode == "epsilon_greedy":
                    count = len(observations)
                    others = torch.randint(self.spaces.action_size, (count,), generator=generator)
                    explore = torch.rand(count, generator=generator) < epsilon
                    actions = torch.where(explore, others, actions)
            elif self.spaces.discrete:
                actions = torch.multinomial(outputs.softmax(-1), 1, generator=generator).squeeze(-1)
                log_probs, _ = self.evaluate(outputs, actions)
            else:
                noise = torch.randn(outputs.shape, generator=generator)
                actions = outputs + noise * self.module.log_std.exp()
                self.check_finite(actions)
                log_probs, _ = self.evaluate(outputs, actions)
            return actions.numpy(), _array(log_probs), _array(values)

    def evaluate(self, outputs: Any, actions: Any) -> tuple[Any, Any]:
        """Log-probabilities of actions, and the entropy of each distribution. Gradients flow through both."""
        if self.spaces.discrete:
            log_all = outputs.log_softmax(-1)
            log_probs = log_all.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
            return log_probs, -(log_all.exp() * log_all).sum(-1)
        log_std = self.module.log_std
        scaled = (actions - outputs) * (-log_std).exp()
        log_probs = -0.5 * (scaled * scaled + _LOG_2_PI).sum(-1) - log_std.sum()
        entropy = (0.5 + 0.5 * _LOG_2_PI + log_std).sum()
        return log_probs, entropy.expand(len(actions))

    def native_weights(self) -> dict[str, Any]:
        """The arguments of `aktis.simulate.Rollouts.collect` that hold the weights."""
        weights: dict[str, Any] = {
            "actor": layers_of(self.module.actor),
            "activation": self.module.activation,
        }
        if self.critic:
            weights["critic"] = layers_of(self.module.critic)
            if not self.spaces.discrete:
                weights["log_std"] = self.module.log_std.detach().numpy()
        return weights

    def state_arrays(self) -> dict[str, Any]:
        """The model's weights and buffers as arrays, for actors."""
        return {name: tensor.detach().numpy() for name, tensor in self.module.state_dict().items()}

    def load_arrays(self, arrays: dict[str, Any]) -> None:
        """Takes over what `state_arrays` of an equal model gave."""
        with torch.no_grad():
            for name, tensor in self.module.state_dict().items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))


def make_policy(name: str, model: Any, spaces: Spaces, default: Callable[[], Any], *, critic: bool) -> Policy:
    """The policy of a user's model, a module or a function of the spaces, or of the default model."""
    if model is None:
        module = default()
    elif isinstance(model, nn.Module):
        module = model
    elif callable(model):
        module = model(spaces)
    else:
        module = model
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"{name}: the model must be a torch.nn.Module, or a function of the spaces that returns one, "
            f"got {_described(module)}"
            "\nhint: for example model=torch.nn.Linear(4, 2)"
        )
    policy = Policy(name, module, spaces, critic=critic)
    policy.check()
    return policy


def _array(tensor: Any) -> Any:
    return None if tensor is None else tensor.numpy()


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"{value!r}"


def _first_odd(outputs: Any) -> float:
    return float(outputs[~torch.isfinite(outputs)][0])
