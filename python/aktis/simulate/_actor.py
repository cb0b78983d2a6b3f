"""The actor that steps a `Simulator`'s environments, and keeps the sick ones from the rest."""

import contextlib
import math
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import aktis
from aktis.simulate._make import import_gymnasium

#: A request fails after this many failures of environments in it: they are not exceptions any more.
FAILURES_MAX = 20


#: Random actions are drawn for this many steps at once.
ACTIONS_AHEAD = 64

_NOTHING: dict[str, Any] = {}


class Failure(NamedTuple):
    """What went wrong with an environment, and that it was replaced."""

    kind: str
    """`raised`, `out of memory`, `not finite` or `endless` for one environment; `hung` or `died` for all of
    an actor."""
    actor: int
    """The number of the actor."""
    environment: int | None
    """The place of the environment in its actor, or `None` where it is all of them."""
    text: str
    """The error and its traceback, or what was seen."""


class SimulationError(RuntimeError):
    """Environments fail again and again; `failures` of the simulator has the story."""


class _Sick(Exception):
    """An environment has returned what it must not."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@aktis.remote
class SimulatorActor:
    """Some environments of one kind, of which each can be replaced."""

    def __init__(self, env: Any, number: int, count: int, seed: int, episode_steps_max: int) -> None:
        self._make, self._number, self._seed = env, number, seed
        self._episode_steps_max = episode_steps_max
        self._made = 0
        self._shape: tuple[int, ...] | None = None
        self._requests = 0
        self._failures: list[Failure] = []
        self._failures_of_request = 0
        self._envs: list[Any] = [None] * count
        self._steps = [0] * count
        self._returns = [0.0] * count
        self._seen: list[Any] = [None] * count
        for index in range(count):
            self._replace(index)
        self._observation_space, self._action_space = self._checked_spaces()
        self._shape = self._observation_space.shape
        batch_space = import_gymnasium().vector.utils.batch_space
        self._many_actions = batch_space(self._action_space, count * ACTIONS_AHEAD)
        self._many_actions.seed(seed)
        self._drawn: Any = None
        self._actions_left = 0
        self._is_choice = hasattr(self._action_space, "n")

    def describe(self) -> tuple[Any, Any]:
        """The spaces of one environment."""
        return self._observation_space, self._action_space

    def fragment(self, policy: Any, steps: int, with_next: bool) -> dict[str, Any]:
        """Steps all environments `steps` times."""
        with self._memory_errors(f"{steps} steps"):
            return self._simulate(policy, steps, None, with_next)

    def episodes(self, policy: Any, episodes: int) -> dict[str, Any]:
        """Plays `episodes` whole episodes from their start: returns and lengths."""
        with self._memory_errors(f"{episodes} episodes"):
            return self._simulate(policy, None, episodes, False)

    # --- simulation ---------------------------------------------------------------------------------

    def _simulate(
        self, policy: Any, steps: int | None, episodes: int | None, with_next: bool
    ) -> dict[str, Any]:
        self._failures, self._failures_of_request = [], 0
        self._requests += 1
        if hasattr(policy, "seed"):
            # Every request has a copy of its own, and copies must not draw the same.
            policy.seed([self._seed, self._requests])
        has_values = getattr(policy, "has_critic", False)
        recorder = None
        if steps is not None:
            recorder = _Recorder(self._observation_space, steps, len(self._envs), with_next or has_values)
        else:
            for index in range(len(self._envs)):
                self._begin(index)
        # Each environment plays its share: whichever ends first would make short episodes more frequent.
        left = [_share(episodes, index, len(self._envs)) for index in range(len(self._envs))]
        returns: list[float] = []
        lengths: list[int] = []
        step = taken = 0
        while any(left) if recorder is None else step < recorder.steps:
            if policy is None:
                actions, extras = self._random_actions(), _NOTHING
            else:
                actions, extras = self._act(policy, np.stack(self._seen))
            if recorder is not None:
                recorder.before(step, self._seen, actions, extras)
            for index in range(len(self._envs)):
                if not left[index]:
                    continue
                outcome = self._step(index, actions[index])
                taken += outcome is not None
                if recorder is not None:
                    recorder.after(step, index, outcome)
                if outcome is None or outcome[2] or outcome[3]:
                    if outcome is not None:
                        returns.append(self._returns[index])
                        lengths.append(self._steps[index])
                        left[index] -= episodes is not None
                    self._begin(index, replace=outcome is None)
            step += 1
        result: dict[str, Any] = {
            "episode_returns": returns,
            "episode_lengths": lengths,
            "steps": taken,
            "actor": self._number,
            "failures": self._failures,
        }
        if recorder is not None:
            result |= recorder.arrays
            result["last_observations"] = np.stack(self._seen)
            if has_values:
                _add_values(result, policy)
                if not with_next:
                    del result["next_observations"]
        return result

    def _act(self, policy: Any, seen: Any) -> tuple[Any, dict[str, Any]]:
        chosen = policy(seen)
        actions, extras = chosen if isinstance(chosen, tuple) else (chosen, {})
        actions = np.asarray(actions)
        if getattr(policy, "is_greedy", False) and self._is_choice:
            actions = actions.argmax(-1)
        if actions.shape != (len(self._envs), *self._action_space.shape):
            raise ValueError(
                f"the policy returned actions of the shape {actions.shape}\n"
                f"hint: {len(self._envs)} actions of {self._action_space} are needed"
            )
        if actions.dtype.kind == "f" and not np.isfinite(actions).all():
            place = int(np.argwhere(~np.isfinite(actions))[0][0])
            raise ValueError(
                f"the policy's action for environment {place} is not finite\n"
                "hint: training has diverged: lower the learning rate, or clip gradients"
            )
        return actions, extras

    def _step(self, index: int, action: Any) -> tuple[Any, float, bool, bool] | None:
        """What a step gives, or `None` if the environment is to be replaced."""
        try:
            seen, reward, terminated, truncated, _ = self._envs[index].step(action)
            seen = self._checked(seen)
            reward = float(reward)
            if not math.isfinite(reward):
                raise _Sick("not finite", f"the reward is {reward}")
            self._steps[index] += 1
            self._returns[index] += reward
            if self._steps[index] >= self._episode_steps_max and not (terminated or truncated):
                truncated = True
                self._report("endless", index, f"an episode has not ended after {self._steps[index]} steps")
        except Exception as error:
            self._report_error(index, error)
            return None
        self._seen[index] = seen
        return seen, reward, bool(terminated), bool(truncated)

    # --- life of environments -----------------------------------------------------------------------

    def _begin(self, index: int, replace: bool = False) -> None:
        """Begins an episode, with a new environment where the old one fails."""
        if replace:
            self._replace(index)
            return
        try:
            self._reset(index, None)
        except Exception as error:
            self._report_error(index, error)
            self._replace(index)

    def _replace(self, index: int) -> None:
        """Makes a new environment, at the start of an episode."""
        while True:
            try:
                if self._envs[index] is not None:
                    old, self._envs[index] = self._envs[index], None
                    old.close()
                self._envs[index] = make_env(self._make)
                self._made += 1
                self._reset(index, self._seed + self._made - 1)
                return
            except Exception as error:
                self._report_error(index, error)

    def _reset(self, index: int, seed: int | None) -> None:
        seen, _ = self._envs[index].reset(seed=seed)
        self._steps[index], self._returns[index] = 0, 0.0
        self._seen[index] = self._checked(seen)

    def _checked(self, seen: Any) -> Any:
        seen = np.asarray(seen)
        if self._shape is not None and seen.shape != self._shape:
            raise _Sick("raised", f"the observation has the shape {seen.shape}, and its space {self._shape}")
        if seen.dtype.kind == "f" and not _is_finite(seen):
            raise _Sick("not finite", f"the observation is {seen}")
        return seen

    def _report_error(self, index: int, error: Exception) -> None:
        kind = "out of memory" if isinstance(error, MemoryError) else getattr(error, "kind", "raised")
        self._report(kind, index, _text(error))

    @contextlib.contextmanager
    def _memory_errors(self, what: str) -> Iterator[None]:
        """Explains a MemoryError that comes from the request itself and not from an environment."""
        try:
            yield
        except MemoryError as error:
            raise SimulationError(
                f"actor {self._number} has no memory for {what} of {len(self._envs)} environments: {error}\n"
                "hint: ask for less at once, or lower envs_per_actor"
            ) from error

    def _report(self, kind: str, index: int, text: str) -> None:
        self._failures.append(Failure(kind, self._number, index, text))
        self._failures_of_request += 1
        if self._failures_of_request > FAILURES_MAX:
            hint = "try the environment alone: env.reset(); env.step(env.action_space.sample())"
            if kind == "out of memory":
                hint = "lower envs_per_actor or num_actors, or let the environment need less memory"
            raise SimulationError(
                f"{self._failures_of_request} failures of environments in one request; "
                f"the last, {kind!r}, is\n{text}\nhint: {hint}"
            )

    def _checked_spaces(self) -> tuple[Any, Any]:
        env = self._envs[0]
        spaces = env.observation_space, env.action_space
        wrappers = ("gymnasium.wrappers.FlattenObservation", "a gymnasium.ActionWrapper that takes one array")
        for name, space, wrapper in zip(("observation", "action"), spaces, wrappers):
            if getattr(space, "shape", None) is None or getattr(space, "dtype", None) is None:
                raise TypeError(
                    f"the {name} space {space} is not one array\nhint: wrap the environment in {wrapper}"
                )
        return spaces

    def _random_actions(self) -> Any:
        """An action for each environment, drawn ahead for many steps: one by one costs like the step."""
        if self._actions_left == 0:
            self._drawn = self._many_actions.sample()
            self._actions_left = ACTIONS_AHEAD
        self._actions_left -= 1
        return self._drawn[self._actions_left :: ACTIONS_AHEAD]


def _is_finite(array: Any) -> bool:
    """Whether all numbers are; for few of them, without the start-up cost of numpy's functions."""
    if array.size <= 32:
        return all(map(math.isfinite, array.ravel().tolist()))
    return bool(np.isfinite(array).all())


def _share(episodes: int | None, index: int, count: int) -> int:
    """How many of the episodes the environment at `index` plays; 1 if there is no limit."""
    return 1 if episodes is None else episodes // count + (index < episodes % count)


class _Recorder:
    """The arrays of a fragment: `[steps, environments, ...]`."""

    def __init__(self, space: Any, steps: int, count: int, with_next: bool) -> None:
        self.steps = steps
        rows = (steps, count)
        self.arrays: dict[str, Any] = {
            "observations": np.empty((*rows, *space.shape), space.dtype),
            "rewards": np.zeros(rows, np.float32),
            "terminations": np.zeros(rows, np.bool_),
            "truncations": np.zeros(rows, np.bool_),
            "valid": np.ones(rows, np.bool_),
        }
        if with_next:
            self.arrays["next_observations"] = np.empty((*rows, *space.shape), space.dtype)

    def before(self, step: int, seen: Any, actions: Any, extras: dict[str, Any]) -> None:
        self.arrays["observations"][step] = seen
        self._row("actions", step, np.asarray(actions))
        for name, values in extras.items():
            self._row(name, step, np.asarray(values))

    def _row(self, name: str, step: int, values: Any) -> None:
        if name not in self.arrays:
            self.arrays[name] = np.empty((self.steps, *values.shape), values.dtype)
        self.arrays[name][step] = values

    def after(self, step: int, index: int, outcome: Any) -> None:
        arrays, place = self.arrays, (step, index)
        if outcome is None:
            # The episode ends here without a successor; learners leave the row out.
            arrays["valid"][place], arrays["truncations"][place] = False, True
            seen = arrays["observations"][place]
        else:
            seen, arrays["rewards"][place], arrays["terminations"][place], arrays["truncations"][place] = (
                outcome
            )
        if "next_observations" in arrays:
            arrays["next_observations"][place] = seen


def _add_values(result: dict[str, Any], policy: Any) -> None:
    result["values"] = policy.values(result["observations"])
    values = policy.values(result["next_observations"])
    result["next_values"] = np.where(result["terminations"], np.float32(0), values)


def make_env(env: Any) -> Any:
    """An environment by its id, or by calling what makes it."""
    gymnasium = import_gymnasium()
    # The checker is a wrapper that costs more than many a step, and what it looks for is looked for here.
    return gymnasium.make(env, disable_env_checker=True) if isinstance(env, str) else env()


def _text(error: BaseException) -> str:
    if isinstance(error, _Sick):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()
