"""Samplers: they run a policy in environments and give arrays of what happened, [steps, environments, ...].

- `NativeSampler`: built-in environments and small networks, stepped by `aktis.simulate` without Python.
- `TorchSampler`: environments of Gymnasium and any model, stepped in Python.
- `ActorSampler`: several of either, each in an actor of its own.

All give the same dict: observations, actions, log_probs, values, rewards, terminations, truncations,
next_values (the value of the true successor, 0 after a termination), last_observations, episode_returns,
episode_lengths, and next_observations with `with_next`. Environments in Python may fail: `valid` is false
where one had to be replaced, and `faults` has a text for each. Torch is imported by `TorchSampler` only:
other processes stay small.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

import aktis
from aktis import simulate
from aktis.rl.environments import Environment, Spaces, Stepper
from aktis.rl.errors import ModelError
from aktis.rl.workers import WorkerDied, results_of, spread

#: Seeds of samplers lie this far apart, so that no two of them share an environment's seed.
SEED_STRIDE = 1_000_003

#: Environments that one evaluation runs side by side, at most.
EVALUATION_ENVIRONMENTS = 16

Batch = dict[str, Any]


class Sampler(Protocol):
    """What all samplers can do."""

    def weights_of(self, policy: Any) -> Any:
        """The policy's weights as `collect` takes them."""

    def collect(
        self, steps: int, weights: Any, mode: str = "sample", epsilon: float = 0.0, with_next: bool = False
    ) -> Batch:
        """Runs each environment for `steps` steps. `mode` is "sample", "greedy" or "epsilon_greedy"."""

    def state(self) -> Any:
        """What `set_state` needs to continue exactly; None where an environment does not allow it."""

    def set_state(self, state: Any) -> None:
        """Continues where `state` was taken."""

    def close(self) -> None:
        """Ends environments and actors."""


@contextlib.contextmanager
def finite_policy(env_id: str) -> Iterator[None]:
    """Turns what `aktis.simulate` says of weights and outputs that are not finite into a ModelError."""
    try:
        yield
    except ValueError as error:
        what = str(error).split("\nhint:")[0]
        raise ModelError(
            f"the policy for {env_id} has diverged: {what}"
            "\nhint: lower the learning rate, or go back to an earlier checkpoint"
        ) from error


class NativeSampler:
    """Steps built-in environments, and the policy's forward pass, in `aktis.simulate`."""

    def __init__(self, env_id: str, count: int, seed: int, discrete: bool) -> None:
        self.rollouts = simulate.Rollouts(env_id, count, seed=seed)
        self.sampling = "categorical" if discrete else "gaussian"

    def weights_of(self, policy: Any) -> Any:
        return policy.native_weights()

    def collect(
        self, steps: int, weights: Any, mode: str = "sample", epsilon: float = 0.0, with_next: bool = False
    ) -> Batch:
        distribution: Any = self.sampling if mode == "sample" else mode
        with finite_policy(self.rollouts.env_id):
            return self.rollouts.collect(
                steps, **weights, distribution=distribution, epsilon=epsilon, with_next=with_next
            )

    def state(self) -> Any:
        return self.rollouts.state()

    def set_state(self, state: Any) -> None:
        self.rollouts.set_state(state)

    def close(self) -> None:
        pass


class TorchSampler:
    """Steps environments of Gymnasium in this process, with a policy of torch."""

    def __init__(
        self, environment: Environment, policy: Any, count: int, seed: int, worker: int | None = None
    ) -> None:
        import torch

        self.policy = policy
        seeds = [seed + index for index in range(count)]
        self.stepper = Stepper(environment, policy.spaces, count, seeds, worker)
        self.generator = torch.Generator().manual_seed(seed)
        self.local = worker is None

    def weights_of(self, policy: Any) -> Any:
        return None if self.local else policy.state_arrays()

    def collect(
        self, steps: int, weights: Any, mode: str = "sample", epsilon: float = 0.0, with_next: bool = False
    ) -> Batch:
        if weights is not None:
            self.policy.load_arrays(weights)
        try:
            return self._collect(steps, mode, epsilon, with_next)
        finally:
            self.stepper.rest()

    def _collect(self, steps: int, mode: str, epsilon: float, with_next: bool) -> Batch:
        stepper, policy = self.stepper, self.policy
        rows: list[tuple[Any, ...]] = []
        finals: list[tuple[int, Any, Any]] = []
        ended: list[tuple[float, int]] = []
        for step in range(steps):
            before = stepper.observations.copy()
            actions, log_probs, values = policy.act(before, mode, self.generator, epsilon)
            after, rewards, terminations, truncations, episodes = stepper.step(actions)
            outcomes = (rewards, terminations, truncations, stepper.valid)
            rows.append((before, actions, log_probs, values, *outcomes, after))
            ended += episodes
            if truncations.any():
                finals.append((step, np.flatnonzero(truncations), after[truncations]))
        names = ["observations", "actions", "log_probs", "values"]
        names += ["rewards", "terminations", "truncations", "valid"]
        columns = list(zip(*rows))
        batch = {name: np.stack(column) for name, column in zip(names, columns) if column[0] is not None}
        batch["last_observations"] = stepper.observations.copy()
        batch["episode_returns"] = np.array([one for one, _ in ended], np.float64)
        batch["episode_lengths"] = np.array([one for _, one in ended], np.int64)
        batch["faults"] = np.array(stepper.take_faults(), str)
        if with_next:
            batch["next_observations"] = np.stack(columns[-1])
        if policy.critic:
            batch["next_values"] = self._next_values(batch, finals)
        return batch

    def _next_values(self, batch: Batch, finals: list[tuple[int, Any, Any]]) -> Any:
        following = np.empty_like(batch["values"])
        following[:-1] = batch["values"][1:]
        following[-1] = self._values(batch["last_observations"])
        for step, indices, observations in finals:
            following[step, indices] = self._values(observations)
        following[batch["terminations"]] = 0
        return following

    def _values(self, observations: Any) -> Any:
        return self.policy.act(observations, "greedy", self.generator)[2]

    def state(self) -> Any:
        stepper = self.stepper.state()
        if stepper is None:
            return None
        return {"stepper": stepper, "generator": self.generator.get_state()}

    def set_state(self, state: Any) -> None:
        self.stepper.set_state(state["stepper"])
        self.generator.set_state(state["generator"])

    def close(self) -> None:
        self.stepper.close()


class SamplerHost:
    """An actor that holds one sampler; `worker` is its number."""

    def __init__(
        self,
        environment: Environment,
        spaces: Spaces,
        module: Any,
        critic: bool,
        count: int,
        seed: int,
        worker: int,
    ) -> None:
        if module is None:
            assert environment.builtin is not None
            self.sampler: Sampler = NativeSampler(environment.builtin, count, seed, spaces.discrete)
        else:
            import torch

            from aktis.rl.models import Policy

            torch.set_num_threads(1)
            policy = Policy(environment.name, module, spaces, critic=critic)
            self.sampler = TorchSampler(environment, policy, count, seed, worker)

    def collect(self, steps: int, weights: Any, mode: str, epsilon: float, with_next: bool) -> Batch:
        return self.sampler.collect(steps, weights, mode, epsilon, with_next)

    def state(self) -> Any:
        return self.sampler.state()

    def set_state(self, state: Any) -> None:
        self.sampler.set_state(state)


class ActorSampler:
    """Several samplers, each in an actor; their batches are joined along the environments."""

    def __init__(self, environment: Environment, policy: Any, counts: list[int], seed: int) -> None:
        self.environment = environment
        self.native = environment.builtin is not None and policy.native
        self.policy = policy
        self.counts = counts
        self.seed = seed
        self.made = 0
        self.actors = [self._new_actor(worker) for worker in range(len(counts))]

    def _new_actor(self, worker: int) -> Any:
        """An actor for the environments of a worker; each that is made has seeds of its own."""
        self.made += 1
        module = None if self.native else self.policy.module
        return spread(SamplerHost).remote(
            self.environment,
            *(self.policy.spaces, module, self.policy.critic, self.counts[worker]),
            *(self.seed + SEED_STRIDE * self.made, worker),
        )

    def weights_of(self, policy: Any) -> Any:
        return policy.native_weights() if self.native else policy.state_arrays()

    def begin(self, index: int, steps: int, weights: Any, with_next: bool = False) -> Any:
        """Has one actor collect a batch; gives the reference to it."""
        return self.actors[index].collect.remote(steps, weights, "sample", 0.0, with_next)

    def collect(
        self, steps: int, weights: Any, mode: str = "sample", epsilon: float = 0.0, with_next: bool = False
    ) -> Batch:
        request = (steps, aktis.put(weights), mode, epsilon, with_next)
        refs = [actor.collect.remote(*request) for actor in self.actors]
        deaths: list[str] = []
        while True:
            try:
                batch = join(results_of(self.environment, refs, list(range(len(refs)))))
                break
            except WorkerDied as fault:
                if len(deaths) >= self.environment.faults_max:
                    raise
                deaths.append(str(fault))
                self.replace(fault.worker)
                refs[fault.worker] = self.actors[fault.worker].collect.remote(*request)
        if deaths:
            # Samplers without Python have no faults of their own.
            batch["faults"] = np.array([*batch.get("faults", ()), *deaths], str)
        return batch

    def replace(self, worker: int) -> None:
        """Puts a new actor in the place of one that has died."""
        with contextlib.suppress(aktis.exceptions.AktisError):
            aktis.kill(self.actors[worker])
        self.actors[worker] = self._new_actor(worker)

    def state(self) -> Any:
        refs = [actor.state.remote() for actor in self.actors]
        try:
            states = results_of(self.environment, refs, list(range(len(refs))))
        except WorkerDied:  # the next batch tells of it
            return None
        return None if any(state is None for state in states) else states

    def set_state(self, state: Any) -> None:
        aktis.get([actor.set_state.remote(one) for actor, one in zip(self.actors, state, strict=True)])

    def close(self) -> None:
        for actor in self.actors:
            aktis.kill(actor)
        self.actors = []


def valid_rows(batch: Batch) -> Any:
    """Which of the rows [steps * environments] to learn from: not those whose environment was replaced."""
    valid = batch.get("valid")
    return slice(None) if valid is None or valid.all() else np.flatnonzero(valid)


def join(batches: list[Batch]) -> Batch:
    """One batch of the environments of several."""
    flat = ("last_observations", "episode_returns", "episode_lengths", "faults")
    names = batches[0].keys()
    return {
        name: np.concatenate([one[name] for one in batches], axis=int(name not in flat)) for name in names
    }


def make_sampler(environment: Environment, policy: Any, count: int, seed: int, actors: int | None) -> Sampler:
    """The sampler for a policy in `count` environments. `actors` is the number of actors; 0: in this process;
    None: in this process if no Python runs per step, else two actors."""
    native = environment.builtin is not None and policy.native
    if actors is None:
        actors = 0 if native else min(2, count)
    if actors > 0:
        counts = [count // actors + int(index < count % actors) for index in range(min(actors, count))]
        return ActorSampler(environment, policy, counts, seed)
    if native:
        assert environment.builtin is not None
        return NativeSampler(environment.builtin, count, seed, policy.spaces.discrete)
    return TorchSampler(environment, policy, count, seed)


def evaluate(
    environment: Environment, policy: Any, episodes: int, seed: int, greedy: bool = True
) -> tuple[Any, Any, list[str]]:
    """Returns and lengths of whole episodes in fresh environments, and the faults of these."""
    if environment.builtin is not None and policy.native:
        weights = policy.native_weights()
        weights.pop("critic", None)
        sampling = "categorical" if policy.spaces.discrete else "gaussian"
        distribution: Any = "greedy" if greedy else sampling
        rollouts = simulate.Rollouts(environment.builtin, min(episodes, EVALUATION_ENVIRONMENTS), seed=seed)
        with finite_policy(environment.builtin):
            found = rollouts.evaluate(episodes, **weights, distribution=distribution, seed=seed)
        return np.asarray(found[0], np.float64), np.asarray(found[1], np.int64), []
    import torch

    count = min(episodes, EVALUATION_ENVIRONMENTS)
    # Each environment plays a fixed share: taking the first that end would prefer short episodes.
    shares = [episodes // count + int(index < episodes % count) for index in range(count)]
    generator = torch.Generator().manual_seed(seed)
    ended: list[tuple[float, int]] = []
    faults: list[str] = []

    def act(observations: Any) -> Any:
        return policy.act(observations, "greedy" if greedy else "sample", generator)[0]

    for index, share in enumerate(shares):
        with Stepper(environment, policy.spaces, 1, [seed + index]) as stepper:
            ended += [stepper.play(act) for _ in range(share)]
            faults += stepper.take_faults()
    returns = np.array([one for one, _ in ended], np.float64)
    return returns, np.array([one for _, one in ended], np.int64), faults
