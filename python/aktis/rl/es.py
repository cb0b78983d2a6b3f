"""ES: evolution strategies (Salimans et al., 2017), with a tree of aggregators.

Each generation perturbs the weights by Gaussian noise and its negative, plays episodes with each perturbed
policy, and moves the weights towards the noise that did better, by ranks. Noise is never sent: every actor
derives it from the seed, the generation and the number of the pair.

    driver -> evaluators: weights      evaluators -> driver: one return per perturbed policy
    driver -> evaluators: ranks        evaluators -> aggregators -> ... -> driver: one weighted sum of noise

Each aggregator adds the sums of at most `fan_in` actors below it, so the driver receives a single vector
however many evaluators there are.
"""

import dataclasses
import itertools
from collections import deque
from typing import Any, ClassVar

import numpy as np
import torch

import aktis
from aktis.exceptions import ActorDiedError, WorkerCrashedError
from aktis.rl.algorithm import Algorithm
from aktis.rl.config import Config, setting
from aktis.rl.environments import Spaces
from aktis.rl.errors import ModelError
from aktis.rl.models import ACTIVATIONS, Network, Policy
from aktis.rl.optimizer import Adam
from aktis.rl.population import Aggregator, Evaluator
from aktis.rl.workers import WorkerDied, results_of, spread

#: An actor gets one part in so many of its share of the policies that are left.
PORTIONS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class ESConfig(Config):
    """Settings of evolution strategies."""

    actors: int = setting(2, "actors that evaluate policies; 0: this process", low=0)
    fan_in: int = setting(4, "sums that one aggregator adds; more actors than this make a tree", low=2)
    pairs: int = setting(32, "perturbations per generation, each with its negative", low=1)
    episodes_per_policy: int = setting(2, "episodes that each perturbed policy plays", low=1)
    sigma: float = setting(0.1, "standard deviation of perturbations", above=0)
    learning_rate: float = setting(0.05, "step size of Adam", above=0)
    weight_decay: float = setting(0.0, "share of the weights that each generation takes away", low=0, high=1)
    hidden: tuple[int, ...] = setting((32, 32), "sizes of the hidden layers", low=1)
    activation: str = setting("tanh", "between layers", choices=tuple(ACTIVATIONS))


class ES(Algorithm):
    """Evolution strategies.

        es = aktis.rl.ES("Pendulum-v1", seed=1)
        print(es.train().evaluation_return)

    Actions may be discrete or continuous. A training episode in `mean_return` is one of a perturbed policy,
    so give an `evaluation_interval` where `target_return` shall be about the policy itself.
    """

    name = "es"
    config_type = ESConfig
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "Pendulum-v1": {
            "total_steps": 50_000_000,
            "target_return": -200.0,
            "evaluation_interval": 250_000,
            "hidden": (16, 16),
            "episodes_per_policy": 4,
            "learning_rate": 0.1,
            "evaluation_episodes": 500,
        },
        "CartPole-v1": {
            "total_steps": 10_000_000,
            "target_return": 475.0,
            "evaluation_interval": 50_000,
            "hidden": (16,),
        },
    }
    columns = ("best_return", "gradient_norm", "weight_norm", "learning_rate")

    @classmethod
    def default_model(cls, config: Any, spaces: Spaces) -> Network:
        return Network(spaces, config.hidden, config.activation, gain=0.1)

    def _setup(self, model: Any) -> Policy:
        policy = self._make_policy(model)
        self.parameters = list(policy.module.parameters())
        self.weights = torch.nn.utils.parameters_to_vector(self.parameters).detach().clone()
        self.optimizer = Adam([self.weights.requires_grad_()])
        self.evaluators: list[Any] = []
        self.aggregators: list[list[Any]] = []
        return policy

    def _iterate(self) -> dict[str, Any]:
        config = self.config
        rate = config.learning_rate * self._remaining()
        if not self.evaluators:
            self._start()
        weights = self.weights.detach().numpy().copy()
        seed = self._seed("generation", self.iteration)
        if config.actors:
            returns, steps = self._play(weights, seed)
        else:
            returns, steps, faults = self.evaluators[0].play(weights, seed, 0, 2 * config.pairs)
            self._count_faults(faults)
        returns = returns.reshape(config.pairs, 2)
        if not np.isfinite(returns).all():
            raise ModelError("es: a perturbed policy has a return that is not finite\nhint: lower sigma")
        self.steps += steps
        self._count_episodes(returns.ravel())
        advantages = centred_ranks(returns)
        preference = advantages[:, 0] - advantages[:, 1]
        total = self._sum(seed, preference)
        gradient = total / (2 * config.pairs * config.sigma)
        with torch.no_grad():
            self.weights.mul_(1 - config.weight_decay)
        self.optimizer.step([-torch.from_numpy(gradient.astype(np.float32))], rate)
        torch.nn.utils.vector_to_parameters(self.weights.detach(), self.parameters)
        return {
            "best_return": float(returns.max()),
            "gradient_norm": float(np.linalg.norm(gradient)),
            "weight_norm": float(self.weights.detach().norm()),
            "learning_rate": rate,
        }

    def _play(self, weights: Any, seed: int) -> tuple[Any, int]:
        """Returns of all perturbed policies, and the steps: each actor plays some as soon as it is free.

        Built-in environments take equal shares: they are stepped together, and their speed hardly differs.
        """
        policies, workers = 2 * self.config.pairs, len(self.evaluators)
        shares = _shares if self._is_native() else _falling_shares
        waiting = deque(shares(policies, workers))
        shared = aktis.put(weights)
        free = list(range(workers))
        playing: dict[Any, tuple[int, tuple[int, int]]] = {}
        returns: Any = np.empty(policies, np.float64)
        total = 0
        while waiting or playing:
            while free and waiting:
                worker, share = free.pop(), waiting.popleft()
                playing[self.evaluators[worker].play.remote(shared, seed, *share)] = worker, share
            [ready], _ = aktis.wait(list(playing))
            worker, share = playing.pop(ready)
            free.append(worker)
            try:
                [(found, steps, faults)] = results_of(self.environment, [ready], [worker])
            except WorkerDied as fault:
                self._count_faults([str(fault)], fault)
                self.evaluators[worker] = self._new_evaluator(worker)
                waiting.append(share)
                continue
            self._count_faults(faults)
            returns[slice(*share)] = found
            total += steps
        return returns, total

    def _sum(self, seed: int, preference: Any) -> Any:
        """The noise of all pairs, weighted by how much better each is than its negative."""
        pairs, size = self.config.pairs, len(self.weights)
        if not self.config.actors:
            return self.evaluators[0].weighted_noise(seed, 0, pairs, size, preference)
        # Shares are fixed, whoever played: the order of additions decides about the last digits.
        sums = [
            evaluator.weighted_noise.remote(seed, low, high, size, preference[low:high])
            for evaluator, (low, high) in zip(self.evaluators, _shares(pairs, len(self.evaluators)))
        ]
        for level in self.aggregators:
            groups = _groups(sums, self.config.fan_in)
            sums = [aggregator.add.remote(*group) for aggregator, group in zip(level, groups, strict=True)]
        [total] = sums
        try:
            return aktis.get(total)
        except (ActorDiedError, WorkerCrashedError) as error:
            text = str(error).split("\nhint:")[0]
            fault = WorkerDied(
                f"{self.environment.name}: an actor of the tree died: {text}"
                "\nhint: see the output of the workers; faults_max lets training survive it"
            )
            self._count_faults([str(fault)], fault)
        # Sums follow from the seed alone, so new actors give the same.
        self._close()
        self._start()
        return self._sum(seed, preference)

    def _is_native(self) -> bool:
        return self.environment.builtin is not None and self.policy.native

    def _start(self) -> None:
        """Makes the evaluators, and the aggregators above them, level by level up to a single one."""
        config = self.config
        if not config.actors:
            self.evaluators = [self._new_evaluator(None)]
            return
        self.evaluators = [self._new_evaluator(worker) for worker in range(min(config.actors, config.pairs))]
        aggregator = spread(Aggregator)
        width = len(self.evaluators)
        while width > 1:
            width = -(-width // config.fan_in)
            self.aggregators.append([aggregator.remote() for _ in range(width)])

    def _new_evaluator(self, worker: int | None) -> Any:
        """The actor of this number, or a plain object for this process."""
        config = self.config
        make = Evaluator if worker is None else spread(Evaluator).remote
        return make(
            self.environment,
            self.spaces,
            None if self.policy.native else self.policy.module,
            [self.spaces.observation_size, *config.hidden, self.spaces.action_size],
            config.activation,
            config.episodes_per_policy,
            config.sigma,
            worker,
        )

    def _close(self) -> None:
        if self.config.actors:
            for actor in [*self.evaluators, *(one for level in self.aggregators for one in level)]:
                aktis.kill(actor)
        else:
            for evaluator in self.evaluators:
                evaluator.close()
        self.evaluators, self.aggregators = [], []
        super()._close()

    def _state(self) -> dict[str, Any]:
        return {
            "model": dict(self.policy.module.state_dict()),
            "weights": self.weights,
            "optimizer": self.optimizer.state(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.policy.module.load_state_dict(state["model"])
        with torch.no_grad():
            self.weights.copy_(state["weights"])
        self.optimizer.set_state(state["optimizer"])


def centred_ranks(returns: Any) -> Any:
    """Ranks from -0.5 to 0.5, in the shape of `returns`; equal returns share the mean of their ranks."""
    flat = returns.ravel()
    if len(flat) < 2:
        return np.zeros_like(returns)
    _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    ranks = (last - (counts - 1) / 2)[inverse]
    return (ranks / (len(flat) - 1) - 0.5).reshape(returns.shape)


def _shares(count: int, parts: int) -> list[tuple[int, int]]:
    """Cuts the numbers below `count` into parts of almost the same size."""
    bounds = [count * index // parts for index in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def _falling_shares(count: int, workers: int) -> list[tuple[int, int]]:
    """Cuts the numbers below `count` into ever smaller parts: few calls, and little to wait for at last."""
    shares, low = [], 0
    while low < count:
        high = low + max(1, (count - low) // (PORTIONS * workers))
        shares.append((low, high))
        low = high
    return shares


def _groups(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
