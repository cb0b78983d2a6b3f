"""`MlpPolicy`: a small network as a policy for environments of Python, computed with numpy."""

from typing import Any

import numpy as np

from aktis.simulate._rollouts import Activation, Distribution, Layers, as_layers


class MlpPolicy:
    """A policy of linear layers, with the layers and distributions of `Rollouts`.

    A call takes observations `[N, D]` and gives actions and their `log_probs`. With a critic, fragments have
    `values` and `next_values` too.
    """

    def __init__(
        self,
        actor: Layers,
        critic: Layers | None = None,
        *,
        activation: Activation = "tanh",
        distribution: Distribution = "categorical",
        log_std: Any = None,
        epsilon: float = 0.0,
    ) -> None:
        if activation not in ("tanh", "relu"):
            raise ValueError(
                f"activation must be 'tanh' or 'relu', got {activation!r}"
                "\nhint: run networks with other activations by aktis.rl with a torch model"
            )
        if distribution not in ("categorical", "gaussian", "greedy", "epsilon_greedy"):
            raise ValueError(
                f"there is no distribution {distribution!r}\n"
                "hint: there are 'categorical', 'gaussian', 'greedy' and 'epsilon_greedy'"
            )
        if distribution == "gaussian" and log_std is None:
            raise ValueError(
                "a gaussian policy needs log_std\nhint: pass one number for each number of an action"
            )
        self._actor = as_layers(actor, "actor")
        self._critic = None if critic is None else as_layers(critic, "critic")
        self._activation = activation
        self._distribution = distribution
        self._log_std = None if log_std is None else np.asarray(log_std, np.float32)
        self._epsilon = float(epsilon)
        self._random = np.random.default_rng()

    def seed(self, seed: Any) -> None:
        """Makes what is drawn from now on depend on `seed` alone."""
        self._random = np.random.default_rng(seed)

    def __call__(self, observations: Any) -> tuple[Any, dict[str, Any]]:
        """Actions for the observations, and the logarithms of their probabilities."""
        outputs = self._forward(self._actor, observations)
        count = len(outputs)
        if self._distribution == "gaussian":
            noise = self._random.standard_normal(outputs.shape, np.float32)
            log_probs = -0.5 * noise**2 - self._log_std - 0.5 * np.log(2 * np.pi)
            return outputs + np.exp(self._log_std) * noise, {"log_probs": log_probs.sum(-1, np.float32)}
        if self._distribution == "categorical":
            shifted = outputs - outputs.max(-1, keepdims=True)
            cumulated = np.cumsum(np.exp(shifted), -1)
            threshold = self._random.random((count, 1)) * cumulated[:, -1:]
            actions = (cumulated[:, :-1] <= threshold).sum(-1)
            chosen = shifted[np.arange(count), actions]
            return actions, {"log_probs": (chosen - np.log(cumulated[:, -1])).astype(np.float32)}
        if self._distribution == "epsilon_greedy":
            best, choices = outputs.argmax(-1), outputs.shape[-1]
            explores = self._random.random(count) < self._epsilon
            actions = np.where(explores, self._random.integers(choices, size=count), best)
            share = self._epsilon / choices
            with np.errstate(divide="ignore"):
                log_probs = np.log(np.where(actions == best, share + 1 - self._epsilon, share))
            return actions, {"log_probs": log_probs.astype(np.float32)}
        return outputs, {"log_probs": np.zeros(count, np.float32)}

    @property
    def is_greedy(self) -> bool:
        """Whether outputs have to become choices where actions are choices."""
        return self._distribution == "greedy"

    @property
    def has_critic(self) -> bool:
        """Whether it can say values."""
        return self._critic is not None

    def values(self, observations: Any) -> Any:
        """The critic's values of observations `[..., D]`."""
        return self._forward(self._critic, observations)[..., 0]

    def _forward(self, layers: Any, observations: Any) -> Any:
        result = np.asarray(observations, np.float32)
        for number, (weight, bias) in enumerate(layers):
            result = result @ weight.T + bias
            if number < len(layers) - 1:
                result = np.tanh(result) if self._activation == "tanh" else np.maximum(result, 0)
        return result
