"""IMPALA: an asynchronous actor-learner with V-trace (Espeholt et al., 2018).

Actors run the policy with the weights that they got last, and never wait for each other. The learner takes
each batch as it comes, corrects with V-trace for the weights being old, takes a gradient step, and sends the
new weights to the actor that delivered. With `actors=0` one sampler in this process delivers, which makes a
run repeatable.
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import torch

import aktis
from aktis.rl.algorithm import Algorithm
from aktis.rl.config import Config, setting
from aktis.rl.environments import Spaces
from aktis.rl.models import ACTIVATIONS, ActorCritic, Policy
from aktis.rl.optimizer import Adam
from aktis.rl.samplers import ActorSampler, Batch, valid_rows
from aktis.rl.workers import WorkerDied, results_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class IMPALAConfig(Config):
    """Settings of IMPALA."""

    actors: int = setting(
        2, "actors that run environments; 0: this process does, in turn with learning", low=0
    )
    num_envs: int = setting(32, "environments of all actors together", low=1)
    rollout_steps: int = setting(20, "steps of each environment per batch", low=1)
    learning_rate: float = setting(5e-4, "step size of Adam", above=0)
    gamma: float = setting(0.99, "discount factor", low=0, high=1)
    rho_max: float = setting(1.0, "bound of importance weights in targets", above=0)
    c_max: float = setting(1.0, "bound of importance weights in traces", above=0)
    value_coefficient: float = setting(0.5, "weight of the value loss", low=0)
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", low=0)
    gradient_norm_max: float = setting(1.0, "gradients are scaled down to this norm", above=0)
    reward_scale: float = setting(1.0, "factor on rewards while learning", above=0)
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers", low=1)
    activation: str = setting("tanh", "between layers", choices=tuple(ACTIVATIONS))
    initial_std: float = setting(1.0, "standard deviation of continuous actions at first", above=0)


class IMPALA(Algorithm):
    """An asynchronous actor-learner.

        impala = aktis.rl.IMPALA("CartPole-v1", seed=1)
        print(impala.train().solved)

    Actions may be discrete or continuous. With actors, the order in which batches come decides about the
    result, so two runs with one seed differ.
    """

    name = "impala"
    config_type = IMPALAConfig
    critic = True
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "CartPole-v1": {
            "total_steps": 3_000_000,
            "target_return": 475.0,
            # The weights move on while a hundred training episodes end, so evaluations decide.
            "evaluation_interval": 20_000,
            "learning_rate": 2e-3,
            "gamma": 0.98,
        },
    }
    columns = ("loss", "policy_loss", "value_loss", "entropy", "lag", "learning_rate")

    @classmethod
    def default_model(cls, config: Any, spaces: Spaces) -> ActorCritic:
        return ActorCritic(spaces, config.hidden, config.activation, config.initial_std)

    def _setup(self, model: Any) -> Policy:
        config = self.config
        policy = self._make_policy(model)
        parameters = list(policy.module.parameters())
        self.optimizer = Adam(parameters, epsilon=1e-5, norm_max=config.gradient_norm_max)
        self.updates = 0
        #: For each batch that an actor collects: the actor's index, and the update its weights are from.
        self.pending: dict[Any, tuple[int, int]] = {}
        return policy

    def _iterate(self) -> dict[str, Any]:
        config = self.config
        rate = config.learning_rate * self._remaining()
        batch, lag = self._next_batch()
        self._count(batch)
        figures = self._learn(batch, rate)
        self.updates += 1
        return figures | {"lag": lag, "learning_rate": rate}

    def _next_batch(self) -> tuple[Batch, int]:
        """The batch that is ready first, and how many updates ago its weights were made."""
        config = self.config
        sampler = self._open_sampler(config.num_envs, config.actors)
        if not isinstance(sampler, ActorSampler):
            return sampler.collect(config.rollout_steps, sampler.weights_of(self.policy), with_next=True), 0
        weights = sampler.weights_of(self.policy)
        while True:
            # The actor that delivered last gets the newest weights now, and at the start all of them do.
            busy = {index for index, _ in self.pending.values()}
            for index in range(len(sampler.actors)):
                if index not in busy:
                    ref = sampler.begin(index, config.rollout_steps, weights, with_next=True)
                    self.pending[ref] = (index, self.updates)
            [ready], _ = aktis.wait(list(self.pending))
            worker, made_at = self.pending.pop(ready)
            try:
                [batch] = results_of(self.environment, [ready], [worker])
            except WorkerDied as fault:
                self._count_faults([str(fault)], fault)
                sampler.replace(worker)
                continue
            return batch, self.updates - made_at

    def _learn(self, batch: Batch, rate: float) -> dict[str, Any]:
        config = self.config
        policy = self.policy
        steps, count = batch["rewards"].shape
        kept = valid_rows(batch)
        if isinstance(kept, np.ndarray) and not len(kept):
            return {"loss": None}
        truncated = batch["truncations"]
        # One forward pass: all observations, then those behind the last step, then those behind truncations.
        observations = np.concatenate(
            (
                batch["observations"].reshape(steps * count, -1),
                batch["last_observations"],
                batch["next_observations"][truncated],
            )
        )
        outputs, values = policy.outputs(torch.from_numpy(observations))
        actions = torch.from_numpy(
            np.array(batch["actions"]).reshape(steps * count, *batch["actions"].shape[2:])
        )
        log_probs, entropy = policy.evaluate(outputs[: steps * count], actions)
        known = values.detach().numpy()
        inner = known[: steps * count].reshape(steps, count)
        following = np.concatenate((inner[1:], known[None, steps * count : (steps + 1) * count]))
        following[truncated] = known[(steps + 1) * count :]
        following[batch["terminations"]] = 0
        ratios = np.exp(log_probs.detach().numpy().reshape(steps, count) - batch["log_probs"])
        targets, advantages = vtrace(
            batch["rewards"] * config.reward_scale,
            inner,
            following,
            batch["terminations"] | truncated,
            ratios,
            config.gamma,
            config.rho_max,
            config.c_max,
        )
        gains, wanted = torch.from_numpy(advantages.ravel()), torch.from_numpy(targets.ravel())
        policy_loss = -(log_probs[kept] * gains[kept]).mean()
        value_loss = torch.nn.functional.mse_loss(values[: steps * count][kept], wanted[kept])
        mean_entropy = entropy[kept].mean()
        loss = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * mean_entropy
        self.optimizer.minimize(loss, rate)
        return {
            "loss": loss.item(),
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": mean_entropy.item(),
        }

    def _close(self) -> None:
        self.pending.clear()
        super()._close()

    def _state(self) -> dict[str, Any]:
        return {
            "model": dict(self.policy.module.state_dict()),
            "optimizer": self.optimizer.state(),
            "updates": self.updates,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.policy.module.load_state_dict(state["model"])
        self.optimizer.set_state(state["optimizer"])
        self.updates = state["updates"]


def vtrace(
    rewards: Any,
    values: Any,
    next_values: Any,
    ends: Any,
    ratios: Any,
    gamma: float,
    rho_max: float = 1.0,
    c_max: float = 1.0,
) -> tuple[Any, Any]:
    """Targets of the value function and advantages of the policy, [steps, environments].

    `ratios` is how much likelier each action is under the learner's policy than under the one that took it.
    `next_values` is the value of each step's true successor, 0 after a termination; `ends` cuts the trace.
    """
    rho = np.minimum(ratios, rho_max)
    trace = gamma * np.minimum(ratios, c_max) * (1 - ends.astype(np.float32))
    errors = rho * (rewards + gamma * next_values - values)
    excess = np.empty_like(errors, dtype=np.float32)
    following = np.zeros(errors.shape[1], np.float32)
    for step in range(len(errors) - 1, -1, -1):
        following = errors[step] + trace[step] * following
        excess[step] = following
    targets = (values + excess).astype(np.float32)
    # A successor counts with its corrected value; at the end of a batch or an episode, with its plain one.
    successors = np.concatenate((targets[1:], next_values[-1:]))
    successors = np.where(ends, next_values, successors)
    advantages = (rho * (rewards + gamma * successors - values)).astype(np.float32)
    return targets, advantages
