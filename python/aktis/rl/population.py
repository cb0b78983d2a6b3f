"""Actors of evolution strategies: they play with perturbed policies, and add vectors.

Torch is imported for models that `aktis.simulate` cannot run only: other processes stay small.
"""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from aktis import simulate
from aktis.rl.environments import Environment, Spaces, Stepper
from aktis.rl.errors import ModelError
from aktis.rl.samplers import finite_policy


class Evaluator:
    """Plays episodes with perturbed policies. A plain object in the driver, or the actor `worker`.

    Policies are numbered: 2k has the weights plus the noise of pair k, 2k + 1 the weights minus it. `module`
    is a model of the user's; without one, policies are networks of the `sizes`, and need no torch.
    """

    def __init__(
        self,
        environment: Environment,
        spaces: Spaces,
        module: Any,
        sizes: list[int],
        activation: str,
        episodes: int,
        sigma: float,
        worker: int | None = None,
    ) -> None:
        self.environment = environment
        self.spaces = spaces
        self.sizes = sizes
        self.activation: Any = activation
        self.episodes = episodes
        self.sigma = sigma
        self.worker = worker
        self.noise: Any = None
        #: The seed and the pairs that `noise` is of.
        self.noise_key: tuple[int, ...] = ()
        self.policy: Any = None
        self.parameters: list[Any] = []
        #: Made when it is first needed, and kept: an environment may take long to make.
        self.stepper: Stepper | None = None
        if module is not None:
            import torch

            from aktis.rl.models import Policy

            torch.set_num_threads(1)
            self.policy = Policy(environment.name, module, spaces, critic=False)
            self.parameters = list(module.parameters())

    def play(self, weights: Any, seed: int, first: int, end: int) -> tuple[Any, int, list[str]]:
        """Mean returns of the policies from `first` up to `end`, the steps, and the faults."""
        numbers = np.arange(first, end)
        low, high = first // 2, (end + 1) // 2
        noise = np.float32(self.sigma) * self._noise(seed, low, high, len(weights))
        signs = np.where(numbers % 2, np.float32(-1), np.float32(1))
        perturbed = weights + signs[:, None] * noise[numbers // 2 - low]
        faults: list[str] = []
        if self.policy is None and self.environment.builtin is not None:
            with finite_policy(self.environment.builtin):
                returns, steps = simulate.evaluate_population(
                    self.environment.builtin,
                    perturbed,
                    self.episodes,
                    sizes=self.sizes,
                    seed=seed,
                    activation=self.activation,
                )
        else:
            returns, steps, faults = self._play_in_python(perturbed, seed)
        return np.asarray(returns, np.float64), int(steps), faults

    def _play_in_python(self, perturbed: Any, seed: int) -> tuple[Any, int, list[str]]:
        returns, steps = [], 0
        if self.stepper is None:
            self.stepper = Stepper(self.environment, self.spaces, 1, [seed], self.worker)
        stepper = self.stepper
        try:
            for weights in perturbed:
                act = self._acting(weights)
                # All policies start from the same states: their difference is then that of the policies.
                stepper.begin([seed])
                # Where an environment fails, the episode is played again in a new one.
                ended = [stepper.play(act) for _ in range(self.episodes)]
                returns.append(sum(one for one, _ in ended) / self.episodes)
                steps += sum(length for _, length in ended)
        except BaseException:
            # It is in no state to go on from.
            self.close()
            raise
        finally:
            stepper.rest()
        return returns, steps, stepper.take_faults()

    def _acting(self, weights: Any) -> Callable[[Any], Any]:
        """What acts with these weights, for the observation of one environment."""
        if self.policy is not None:
            import torch

            torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), self.parameters)
            return lambda observations: self.policy.act(observations, "greedy", None)[0]
        network = simulate.MlpPolicy(
            layers_of_vector(weights, self.sizes), activation=self.activation, distribution="greedy"
        )
        discrete = self.spaces.discrete

        def act(observations: Any) -> Any:
            outputs, _ = network(observations)
            if not np.isfinite(outputs).all():
                raise ModelError(
                    f"{self.environment.name}: a perturbed policy returned an output that is not finite"
                    "\nhint: lower sigma or the learning rate"
                )
            return outputs.argmax(-1) if discrete else outputs

        return act

    def close(self) -> None:
        """Closes the environment, which may have failed."""
        stepper, self.stepper = self.stepper, None
        if stepper is not None:
            with contextlib.suppress(Exception):
                stepper.close()

    def weighted_noise(self, seed: int, low: int, high: int, size: int, preference: Any) -> Any:
        """The sum of the noise of the pairs from `low` to `high`, each times its preference."""
        return preference.astype(np.float32) @ self._noise(seed, low, high, size)

    def _noise(self, seed: int, low: int, high: int, size: int) -> Any:
        key = (seed, low, high, size)
        if key != self.noise_key:
            self.noise = np.stack([noise_of(seed, pair, size) for pair in range(low, high)])
            self.noise_key = key
        return self.noise


class Aggregator:
    """An actor that adds vectors."""

    def add(self, *vectors: Any) -> Any:
        """The sum, in the order given."""
        return np.sum(vectors, axis=0)


def noise_of(seed: int, pair: int, size: int) -> Any:
    """The perturbation of one pair, the same in every process."""
    return np.random.default_rng((seed, pair)).standard_normal(size, dtype=np.float32)


def layers_of_vector(weights: Any, sizes: list[int]) -> list[tuple[Any, Any]]:
    """The layers of a network of these sizes whose parameters are one vector, as torch puts them there."""
    layers, at = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        bias = at + inputs * outputs
        layers.append((weights[at:bias].reshape(outputs, inputs), weights[bias : bias + outputs]))
        at = bias + outputs
    return layers
