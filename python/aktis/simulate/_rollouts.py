"""`Rollouts`: built-in environments driven by a small policy, without Python between the steps."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from aktis.simulate._builtin import NativeRollouts
from aktis.simulate._checks import checked_builtin, checked_count, checked_seed

#: The layers of a network: the weight `[outputs, inputs]` and the bias `[outputs]` of each, as in
#: `torch.nn.Linear`. Arrays, or whatever numpy makes arrays of, such as tensors on the CPU.
Layers = Sequence[tuple[Any, Any]]

Distribution = Literal["categorical", "gaussian", "greedy", "epsilon_greedy"]
Activation = Literal["tanh", "relu"]


def as_layers(layers: Any, name: str) -> list[tuple[Any, Any]]:
    """The layers as contiguous arrays of float32."""
    if isinstance(layers, (str, bytes)) or not isinstance(layers, Sequence):
        raise TypeError(
            f"{name} must be a list of (weight, bias), got {type(layers).__name__}"
            "\nhint: give one pair of arrays for each layer, [outputs, inputs] and [outputs]"
        )
    found = []
    for number, layer in enumerate(layers):
        try:
            weight, bias = layer
        except (TypeError, ValueError):
            raise TypeError(
                f"{name}: layer {number} must be a pair of weight and bias, got {type(layer).__name__}\n"
                "hint: [(linear.weight, linear.bias) for linear in ...]"
            ) from None
        found.append((_array(weight, f"{name}: layer {number}"), _array(bias, f"{name}: layer {number}")))
    return found


def _array(values: Any, name: str) -> Any:
    if hasattr(values, "detach"):  # a tensor, whose gradient is of no use here
        values = values.detach().cpu().numpy()
    try:
        return np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be an array of numbers, got {values!r:.80}\nhint: a numpy array or a tensor"
        ) from error


def acting(activation: str, distribution: str, log_std: Any = None, epsilon: float = 0.0) -> dict[str, Any]:
    """How a policy acts, as the native module wants it."""
    if log_std is not None:
        log_std = _array(log_std, "log_std").ravel().tolist()
    if isinstance(epsilon, bool | str) or not hasattr(epsilon, "__float__"):
        raise TypeError(f"epsilon must be a number, got {epsilon!r}\nhint: a probability from 0 to 1")
    return {
        "activation": activation,
        "distribution": distribution,
        "log_std": log_std,
        "epsilon": float(epsilon),
    }


class Rollouts:
    """Built-in environments, and fragments of what a policy does in them.

    Environment `i` has the seed `seed + i`. Episodes that have ended begin again within the same step, and go
    on from one call to the next.

    >>> import numpy as np
    >>> from aktis.simulate import Rollouts
    >>> rollouts = Rollouts("CartPole-v1", 4, seed=1)
    >>> actor = [(np.zeros((2, 4), np.float32), np.zeros(2, np.float32))]
    >>> rollouts.collect(8, actor)["observations"].shape
    (8, 4, 4)
    """

    def __init__(self, env_id: str, num_envs: int, *, seed: int | None = None) -> None:
        self.env_id = checked_builtin(env_id)
        self.num_envs = checked_count("num_envs", num_envs)
        self._native = NativeRollouts(env_id, self.num_envs, checked_seed(seed))
        low, _, choices, action_low, _ = self._native.spaces()
        #: How many numbers an observation is.
        self.observation_width = len(low)
        #: How many choices there are, or `None` if actions are numbers.
        self.num_choices: int | None = choices
        #: How many numbers an action is, or `None` if actions are choices.
        self.action_width: int | None = len(action_low) if choices is None else None

    def collect(
        self,
        steps: int,
        actor: Layers,
        critic: Layers | None = None,
        *,
        activation: Activation = "tanh",
        distribution: Distribution = "categorical",
        log_std: Any = None,
        epsilon: float = 0.0,
        with_next: bool = False,
    ) -> dict[str, Any]:
        """Steps all environments `steps` times (T) and returns fresh arrays for T steps of N environments.

        | name | shape | |
        |---|---|---|
        | `observations` | `[T, N, D]` float32 | what the policy saw |
        | `actions` | `[T, N]` int64, `[T, N, A]` float32 | what it did, before environments clip |
        | `log_probs` | `[T, N]` float32 | of the actions; 0 where they are not drawn |
        | `rewards` | `[T, N]` float32 | |
        | `terminations`, `truncations` | `[T, N]` bool | where episodes ended |
        | `values`, `next_values` | `[T, N]` float32 | with a critic: of what the policy saw, and of its true
          successor, also where the episode was truncated; 0 where it was terminated |
        | `next_observations` | `[T, N, D]` float32 | with `with_next`: the true successors |
        | `last_observations` | `[N, D]` float32 | what the policy sees next |
        | `episode_returns`, `episode_lengths` | `[k]` float64, int64 | of episodes that ended |

        `distribution`: `categorical` draws a choice with the outputs as logits; `gaussian` draws numbers
        around the outputs with `exp(log_std)` as deviations; `greedy` takes the highest output, or the
        outputs where actions are numbers; `epsilon_greedy` takes any choice with the probability `epsilon`.

        Raises ValueError where weights do not fit the environment, or are not finite, or what the networks
        compute is not; the message names the place.
        """
        steps = checked_count("steps", steps)
        rows, width = (steps, self.num_envs), self.observation_width
        flags: Any = np.zeros((2, *rows), np.bool_)
        arrays: dict[str, Any] = {
            "observations": np.empty((*rows, width), np.float32),
            "choices": np.empty(rows, np.int64) if self.action_width is None else None,
            "numbers": np.empty((*rows, self.action_width), np.float32) if self.action_width else None,
            "log_probs": np.empty(rows, np.float32),
            "rewards": np.empty(rows, np.float32),
            "terminations": flags[0].view(np.uint8),
            "truncations": flags[1].view(np.uint8),
            "values": None if critic is None else np.empty(rows, np.float32),
            "next_values": None if critic is None else np.empty(rows, np.float32),
            "next_observations": np.empty((*rows, width), np.float32) if with_next else None,
            "last_observations": np.empty((self.num_envs, width), np.float32),
        }
        layers = as_layers(actor, "actor")
        critic_layers = None if critic is None else as_layers(critic, "critic")
        how = acting(activation, distribution, log_std, epsilon)
        returns, lengths = self._native.collect(steps, layers, critic_layers, how, arrays)
        choices, numbers = arrays.pop("choices"), arrays.pop("numbers")
        found = {name: array for name, array in arrays.items() if array is not None}
        found["actions"] = choices if numbers is None else numbers
        found["terminations"], found["truncations"] = flags
        found["episode_returns"] = np.array(returns, np.float64)
        found["episode_lengths"] = np.array(lengths, np.int64)
        return found

    def evaluate(
        self,
        episodes: int,
        actor: Layers,
        *,
        activation: Activation = "tanh",
        distribution: Distribution = "greedy",
        log_std: Any = None,
        epsilon: float = 0.0,
        seed: int | None = None,
    ) -> tuple[Any, Any]:
        """Plays whole episodes in environments of their own; returns their returns and their lengths."""
        episodes = checked_count("episodes", episodes)
        how = acting(activation, distribution, log_std, epsilon)
        layers = as_layers(actor, "actor")
        returns, lengths = self._native.evaluate(episodes, layers, how, checked_seed(seed))
        return np.array(returns, np.float64), np.array(lengths, np.int64)

    def state(self) -> bytes:
        """All that the future depends on beside the policy: `set_state` goes on exactly there."""
        return self._native.state()

    def set_state(self, state: bytes) -> None:
        """Goes on where `state` was called, with the same environments and as many of them."""
        if not isinstance(state, bytes):
            raise TypeError(
                f"state must be bytes, got {type(state).__name__}\nhint: give what state() has returned"
            )
        self._native.set_state(state)

    def __repr__(self) -> str:
        return f"Rollouts({self.env_id!r}, {self.num_envs})"
