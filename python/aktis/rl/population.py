"""Actors of evolution strategies: they play with perturbed policies, and add vectors.

Torch is imported for models that `aktis.simulate` cannot run only: other processes stay small.
"""

from typing import Any

import numpy as np

from aktis import simulate
from aktis.rl.environments import Environment, Spaces, Stepper
from aktis.rl.samplers import finite_policy


class Evaluator:
    """Plays episodes with perturbed policies. A plain object in the driver, or the actor `worker`."""

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
        self.sizes = sizes
        self.activation: Any = activation
        self.episodes = episodes
        self.sigma = sigma
        self.worker = worker
        self.noise: Any = None
        #: The seed and the pairs that `noise` is of.
        self.noise_key: tuple[int, ...] = ()
        self.policy: Any = None
        if module is not None:
            from aktis.rl.models import Policy

            self.policy = Policy(environment.name, module, spaces, critic=False)

    def play(self, weights: Any, seed: int, low: int, high: int) -> tuple[Any, int, list[str]]:
        """Mean returns of the pairs from `low` to `high`, [pairs, 2], the steps, and the faults."""
        offsets = np.float32(self.sigma) * self._noise(seed, low, high, len(weights))
        perturbed = np.concatenate((weights + offsets, weights - offsets))
        if self.policy is None:
            assert self.environment.builtin is not None
            faults: list[str] = []
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
        return np.asarray(returns, np.float64).reshape(2, -1).T, int(steps), faults

    def _play_in_python(self, perturbed: Any, seed: int) -> tuple[Any, int, list[str]]:
        import torch

        parameters = list(self.policy.module.parameters())
        returns, steps = [], 0
        faults: list[str] = []
        torch.set_num_threads(1)
        # All policies start from the same states: their difference is then that of the policies.
        for weights in perturbed:
            torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), parameters)
            with Stepper(self.environment, self.policy.spaces, 1, [seed], self.worker) as stepper:
                # Where an environment fails, the episode is played again in a new one.
                ended = [stepper.play(self._act) for _ in range(self.episodes)]
                faults += stepper.take_faults()
            returns.append(sum(one for one, _ in ended) / self.episodes)
            steps += sum(length for _, length in ended)
        return returns, steps, faults

    def _act(self, observations: Any) -> Any:
        return self.policy.act(observations, "greedy", None)[0]

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
