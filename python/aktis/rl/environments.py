"""Environments that an algorithm is given: an id, a class or a function; their spaces, and how to step them.

Does not import torch: processes that only step environments stay small.
"""

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from aktis import simulate
from aktis.rl.deadlines import Deadline, DeadlineOverrun
from aktis.rl.errors import EnvironmentFault, SpaceError

NOT_FINITE_HINT = "see what the environment divides by, and bound its state"
SPACE_HINT = "correct `observation_space` of the environment, or what its `step` and `reset` return"
ENDLESS_HINT = "wrap it in gymnasium.wrappers.TimeLimit, or raise episode_steps_max"

#: Half the width of a continuous action that a new policy explores without scaling.
HALF_MIN, HALF_MAX = 0.1, 10.0


@dataclasses.dataclass(frozen=True)
class Spaces:
    """What a model sees and decides, in plain numbers."""

    observation_shape: tuple[int, ...]
    #: Number of values of a Discrete observation, which models see as one-hot vectors; else None.
    observation_values: int | None
    #: The first of these values.
    observation_start: int
    #: Whether each number of an observation is a byte, as in pictures.
    observation_bytes: bool
    #: Number of actions of a Discrete space, and the first of them; else None.
    action_count: int | None
    action_start: int
    #: Shape and bounds of a Box of actions; else None.
    action_shape: tuple[int, ...]
    action_low: Any
    action_high: Any

    @property
    def observation_size(self) -> int:
        """Numbers per observation."""
        return int(np.prod(self.observation_shape))

    @property
    def action_size(self) -> int:
        """Outputs that a policy needs: one per discrete action, or one per number of a continuous action."""
        return self.action_count if self.action_count is not None else int(np.prod(self.action_shape))

    @property
    def discrete(self) -> bool:
        """Whether an action is a choice among finitely many."""
        return self.action_count is not None

    def warn_of_bounds(self, name: str) -> None:
        """Warns of continuous actions that a new policy, which draws numbers around 0, hardly reaches."""
        if self.discrete:
            return
        for low, high in zip(np.ravel(self.action_low), np.ravel(self.action_high)):
            half = (float(high) - float(low)) / 2
            if low > 0 or high < 0 or (math.isfinite(half) and not HALF_MIN <= half <= HALF_MAX):
                warnings.warn(
                    f"{name}: actions reach from {low:g} to {high:g}, and a new policy draws them around 0 "
                    "with a standard deviation of about 1"
                    "\nhint: wrap the environment in gymnasium.wrappers.RescaleAction(env, -1, 1)",
                    stacklevel=3,
                )
                return

    @classmethod
    def of(cls, name: str, observations: Any, actions: Any) -> "Spaces":
        """The description of two spaces of Gymnasium; SpaceError if no algorithm takes their kind."""
        if isinstance(observations, gymnasium.spaces.Discrete):
            values: int | None = int(observations.n)
            start = int(observations.start)
            shape: tuple[int, ...] = (int(observations.n),)
        elif isinstance(observations, gymnasium.spaces.Box):
            values, start, shape = None, 0, observations.shape
        else:
            raise SpaceError(
                f"{name}: observations must be a Box or Discrete space, got {observations}"
                "\nhint: wrap the environment in gymnasium.wrappers.FlattenObservation"
            )
        for what, space in (("observations", observations), ("actions", actions)):
            if isinstance(space, gymnasium.spaces.Box) and 0 in space.shape:
                raise SpaceError(f"{name}: the space of {what} holds no number: {space}\nhint: {SPACE_HINT}")
        pixels = values is None and observations.dtype == np.uint8
        if isinstance(actions, gymnasium.spaces.Discrete):
            return cls(shape, values, start, pixels, int(actions.n), int(actions.start), (), None, None)
        if not isinstance(actions, gymnasium.spaces.Box):
            raise SpaceError(
                f"{name}: actions must be a Discrete or Box space, got {actions}"
                "\nhint: write a gymnasium.ActionWrapper that maps a Discrete space to these actions"
            )
        if not np.issubdtype(actions.dtype, np.floating):
            raise SpaceError(
                f"{name}: a Box of actions must hold floating-point numbers, got {actions}"
                "\nhint: write a gymnasium.ActionWrapper that rounds to whole numbers"
            )
        return cls(shape, values, start, pixels, None, 0, actions.shape, actions.low, actions.high)


@dataclasses.dataclass(frozen=True)
class Environment:
    """How to make an environment, in any process."""

    source: str | Callable[..., Any]
    arguments: dict[str, Any]
    episode_steps_max: int = 100_000
    step_deadline: float = 300.0
    #: After so many faults, one more is an error; without any, the first.
    faults_max: int = 0

    @property
    def name(self) -> str:
        """For messages and checkpoints."""
        if isinstance(self.source, str):
            return self.source
        return getattr(self.source, "__qualname__", None) or repr(self.source)

    @property
    def builtin(self) -> str | None:
        """The id, if `aktis.simulate` steps this environment without Python."""
        if isinstance(self.source, str) and not self.arguments and simulate.is_builtin(self.source):
            return self.source
        return None

    def make(self) -> Any:
        """A new environment."""
        deadline = Deadline(self.step_deadline)
        try:
            with deadline:
                if isinstance(self.source, str):
                    made = gymnasium.make(self.source, **self.arguments)
                else:
                    made = self.source(**self.arguments)
        except DeadlineOverrun:
            raise EnvironmentFault(
                f"{self.name}: the environment was not made within step_deadline={self.step_deadline:g} s"
                "\nhint: see what its constructor waits for, or raise step_deadline"
            ) from None
        except gymnasium.error.UnregisteredEnv as error:
            ids = ", ".join(simulate.builtin_ids())
            raise EnvironmentFault(
                f"there is no environment {self.name!r}: {error}"
                f"\nhint: give an id that Gymnasium has registered, a class or a function; built in are {ids}"
            ) from error
        except Exception as error:
            raise EnvironmentFault(
                f"{self.name}: the environment cannot be made: {type(error).__name__}: {error}"
                "\nhint: make it alone first; `env_kwargs` are the arguments of its constructor"
            ) from error
        finally:
            deadline.rest()
        if not isinstance(made, gymnasium.Env):
            raise EnvironmentFault(
                f"{self.name} made a {type(made).__name__}, which is not a gymnasium.Env"
                "\nhint: give an id, a class derived from gymnasium.Env, or a function that returns one"
            )
        return made

    def spaces(self) -> Spaces:
        """The spaces, looked up in an environment that is made for this."""
        if self.builtin is not None:
            vector = simulate.make_vec(self.builtin, 1, seed=0)
            found = vector.single_observation_space, vector.single_action_space
            vector.close()
        else:
            one = self.make()
            # A class that forgets one of them has no such attribute.
            found = getattr(one, "observation_space", None), getattr(one, "action_space", None)
            one.close()
        return Spaces.of(self.name, *found)

    @classmethod
    def of(
        cls,
        source: Any,
        arguments: dict[str, Any] | None,
        episode_steps_max: int,
        step_deadline: float,
        faults_max: int,
    ) -> "Environment":
        """The environment that a user names."""
        if not isinstance(source, str) and not callable(source):
            hint = "give an id, a class or a function that makes an environment"
            if isinstance(source, gymnasium.vector.VectorEnv):
                hint = "give what makes one environment; num_envs= says how many run side by side"
            if isinstance(source, gymnasium.Env):
                hint = "give its class or a function that makes one, since each actor makes its own"
            raise EnvironmentFault(
                f"an environment must be an id, a class or a function, got {source!r}\nhint: {hint}"
            )
        if arguments is not None and not isinstance(arguments, dict):
            raise EnvironmentFault(
                f"env_kwargs must be a dict of the environment's arguments, got {arguments!r}"
                '\nhint: env_kwargs={"render_mode": None}'
            )
        return cls(source, dict(arguments or {}), episode_steps_max, step_deadline, faults_max)


class Stepper:
    """Steps environments of Gymnasium one after the other. The step that ends an episode also resets.

    An environment that raises, hangs, or breaks its promises, becomes an EnvironmentFault that names it. Up
    to `Environment.faults_max` of them are kept for `take_faults`, and the environment is replaced.
    `worker` is the number of the actor that this runs in, if any.
    """

    def __init__(
        self,
        environment: Environment,
        spaces: Spaces,
        count: int,
        seeds: list[int],
        worker: int | None = None,
    ) -> None:
        self.environment = environment
        self.worker = worker
        self.deadline = Deadline(environment.step_deadline, exits=worker is not None)
        self.spaces = spaces
        self.environments = [environment.make() for _ in range(count)]
        self.lengths = [0] * count
        self.returns = [0.0] * count
        #: Which environments have made the last step; the others were replaced in it.
        self.valid: Any = np.ones(count, bool)
        self._faulted: list[str] = []
        #: For replacements: seeds of other samplers lie far beyond.
        self._next_seed = max(seeds, default=0) + 1
        self.observations: Any = np.zeros((count, spaces.observation_size), np.float32)
        try:
            for index, seed in enumerate(seeds):
                self.observations[index] = self._reset(index, seed)
        finally:
            self.rest()

    def begin(self, seeds: list[int]) -> None:
        """Begins all episodes again, with these seeds."""
        self._next_seed = max(seeds) + 1
        for index, seed in enumerate(seeds):
            self._begin(index, seed)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[tuple[float, int]]]:
        """Successors before any reset, rewards, terminations, truncations, and the episodes that have ended.

        `self.observations` is where each environment is afterwards, after a reset if its episode has ended.
        An environment that was replaced counts as truncated where it was.
        """
        count = len(self.environments)
        successors = self.observations.copy()
        self.valid = np.ones(count, bool)
        rewards: Any = np.zeros(count, np.float32)
        terminations: Any = np.zeros(count, bool)
        truncations: Any = np.zeros(count, bool)
        ended: list[tuple[float, int]] = []
        for index in range(count):
            try:
                successor, reward, terminated, truncated = self._step(index, actions[index])
            except EnvironmentFault as fault:
                self._keep(fault)
                self.valid[index], truncations[index] = False, True
                self._replace(index)
                continue
            successors[index], rewards[index] = successor, reward
            terminations[index] = terminated
            truncations[index] = truncated and not terminated
            if terminated or truncated:
                ended.append((self.returns[index], self.lengths[index]))
                self._begin(index)
            else:
                self.observations[index] = successor
        return successors, rewards, terminations, truncations, ended

    def _step(self, index: int, action: Any) -> tuple[Any, float, bool, bool]:
        """One step of one environment: its successor, reward, and whether it is terminated or truncated."""
        with self._faults("step", index):
            returned = self.environments[index].step(self._action(action))
        try:
            observation, reward, terminated, truncated, _ = returned
        except (TypeError, ValueError):
            raise self._fault(
                index,
                f"returned {returned!r:.80} from step",
                "return (observation, reward, terminated, truncated, info), as Gymnasium does since 0.26",
            ) from None
        reward = self._reward(index, reward)
        successor = self._observation(index, observation)
        self.lengths[index] += 1
        self.returns[index] += reward
        if self.lengths[index] >= self.environment.episode_steps_max and not (terminated or truncated):
            self._keep(
                EnvironmentFault(
                    f"{self.environment.name}: an episode has not ended after {self.lengths[index]} steps"
                    f"\nhint: {ENDLESS_HINT}"
                )
            )
            truncated = True
        return successor, reward, bool(terminated), bool(truncated)

    def _begin(self, index: int, seed: int | None = None) -> None:
        """Begins the next episode of an environment."""
        try:
            self.observations[index] = self._reset(index, seed)
        except EnvironmentFault as fault:
            self._keep(fault)
            self._replace(index)

    def _replace(self, index: int) -> None:
        """Puts a new environment in the place of one that has failed, at the start of an episode."""
        self.rest()  # the constructor has a deadline of its own, which needs the same timer
        while True:
            try:
                with contextlib.suppress(Exception):  # it may be in any state
                    self.environments[index].close()
                self.environments[index] = self.environment.make()
                self._next_seed += 1
                self.observations[index] = self._reset(index, self._next_seed - 1)
                return
            except EnvironmentFault as fault:
                self._keep(fault)

    def _keep(self, fault: EnvironmentFault) -> None:
        """Takes note of a fault, or raises it if it is one too many."""
        if len(self._faulted) >= self.environment.faults_max:
            raise fault
        self._faulted.append(str(fault))

    def take_faults(self) -> list[str]:
        """The faults since the last call."""
        faults, self._faulted = self._faulted, []
        return faults

    def play(self, act: Callable[[Any], Any]) -> tuple[float, int]:
        """One episode of a single environment with the actions of `act`: its return and length."""
        while True:
            action = act(self.observations)[0]
            try:
                successor, _, terminated, truncated = self._step(0, action)
            except EnvironmentFault as fault:
                self._keep(fault)
                self._replace(0)
                continue
            if terminated or truncated:
                ended = self.returns[0], self.lengths[0]
                self._begin(0)
                return ended
            self.observations[0] = successor

    def state(self) -> dict[str, Any] | None:
        """What continues the episodes, if environments have `get_state` and `set_state`; else None."""
        cores = [one.unwrapped for one in self.environments]
        if not all(hasattr(core, "get_state") and hasattr(core, "set_state") for core in cores):
            return None
        return {
            "environments": [core.get_state() for core in cores],
            "generators": [core.np_random.bit_generator.state for core in cores],
            "elapsed": list(self.lengths),
            "returns": list(self.returns),
            "observations": self.observations,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken."""
        for index, one in enumerate(self.environments):
            core = one.unwrapped
            core.set_state(state["environments"][index])
            core.np_random.bit_generator.state = state["generators"][index]
            layer = one
            while layer is not core:
                if isinstance(layer, gymnasium.wrappers.TimeLimit):
                    layer._elapsed_steps = state["elapsed"][index]
                layer = layer.env
        self.lengths = list(state["elapsed"])
        self.returns = list(state["returns"])
        self.observations = np.array(state["observations"], np.float32)

    def rest(self) -> None:
        """Comes after the last step of a request: the deadline needs its timer no more."""
        self.deadline.rest()

    def close(self) -> None:
        """Closes all environments."""
        self.rest()
        for one in self.environments:
            one.close()

    def __enter__(self) -> "Stepper":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reset(self, index: int, seed: int | None) -> Any:
        self.lengths[index] = 0
        self.returns[index] = 0.0
        with self._faults("reset", index):
            returned = self.environments[index].reset(seed=seed)
        try:
            observation, _ = returned
        except (TypeError, ValueError):
            raise self._fault(
                index,
                f"returned {returned!r:.80} from reset",
                "return (observation, info), as Gymnasium does since 0.26",
            ) from None
        return self._observation(index, observation)

    def _reward(self, index: int, reward: Any) -> float:
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise self._fault(
                index, f"returned the reward {reward!r:.80}, which is not a number", SPACE_HINT
            ) from None
        if not math.isfinite(number):
            raise self._fault(index, f"returned a reward of {reward}", NOT_FINITE_HINT)
        return number

    def _action(self, action: Any) -> Any:
        spaces = self.spaces
        if spaces.action_count is not None:
            return int(action) + spaces.action_start
        # np.clip takes four times as long for a few numbers.
        clipped = np.minimum(
            np.maximum(action.reshape(spaces.action_shape), spaces.action_low), spaces.action_high
        )
        return clipped.astype(spaces.action_low.dtype, copy=False)

    def _observation(self, index: int, observation: Any) -> Any:
        spaces = self.spaces
        if spaces.observation_values is not None:
            one_hot: Any = np.zeros(spaces.observation_values, np.float32)
            try:
                position = int(observation) - spaces.observation_start
            except (TypeError, ValueError):
                position = -1
            if not 0 <= position < spaces.observation_values:
                raise self._fault(
                    index,
                    f"returned the observation {observation!r:.80}, which is not in "
                    f"{self.environments[index].observation_space}",
                    SPACE_HINT,
                )
            one_hot[position] = 1
            return one_hot
        try:
            flat = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise self._fault(
                index,
                f"returned the observation {observation!r:.80}, which is no array of numbers",
                SPACE_HINT,
            ) from None
        if flat.shape != spaces.observation_shape:
            raise self._fault(
                index,
                f"returned an observation of shape {flat.shape}; its space says {spaces.observation_shape}",
                SPACE_HINT,
            )
        if not np.isfinite(flat).all():
            raise self._fault(
                index, f"returned an observation that is not finite: {observation}", NOT_FINITE_HINT
            )
        return flat.ravel()

    def _faults(self, verb: str, index: int) -> "_Faults":
        return _Faults(self, verb, index)

    def _fault(self, index: int, what: str, hint: str) -> EnvironmentFault:
        of_worker = "" if self.worker is None else f" of worker {self.worker}"
        where = f"environment {index}{of_worker}, step {self.lengths[index]} of its episode"
        return EnvironmentFault(f"{self.environment.name} {what} ({where})\nhint: {hint}")


class _Faults:
    """Turns what an environment raises, and a call that takes too long, into an EnvironmentFault."""

    def __init__(self, stepper: Stepper, verb: str, index: int) -> None:
        self.stepper, self.verb, self.index = stepper, verb, index

    def __enter__(self) -> None:
        self.stepper.deadline.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        deadline = self.stepper.deadline
        deadline.__exit__()
        if error is None:
            return
        what = f"raised {type(error).__name__} in {self.verb}: {error}"
        hint = "see the traceback of the environment, and try it alone; faults_max lets training survive it"
        if isinstance(error, DeadlineOverrun):
            what = f"has not returned from {self.verb} within step_deadline={deadline.seconds:g} s"
            hint = "see what it waits for, or raise step_deadline if it is that slow"
        elif isinstance(error, MemoryError):
            what = f"ran out of memory in {self.verb}: {str(error) or type(error).__name__}"
            hint = "run fewer environments (num_envs, actors), or ones that need less memory"
        elif not isinstance(error, Exception):
            return
        raise self.stepper._fault(self.index, what, hint) from error
