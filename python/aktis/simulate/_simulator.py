"""`Simulator`: Gymnasium's environments in actors, collected as they come."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import aktis
from aktis.exceptions import ActorDiedError, WorkerCrashedError
from aktis.simulate._actor import Failure, SimulationError, SimulatorActor
from aktis.simulate._checks import checked_count, checked_seed
from aktis.simulate._make import import_gymnasium

#: A request that hangs or kills its actor is tried this many times in all.
ATTEMPTS_MAX = 3
#: `failures` keeps the latest ones; `num_failures` counts all.
FAILURES_KEPT = 1000


class _Request(NamedTuple):
    method: str
    arguments: tuple[Any, ...]
    attempts: int
    tag: Any


class _Running(NamedTuple):
    number: int
    """Which actor."""
    request: _Request
    until: float
    """When it counts as hung, by the monotonic clock."""


class Simulator:
    """Environments of Gymnasium's kind in `num_actors` actors, `envs_per_actor` in each.

    `env` is an id or a function that makes an environment. Requests go to whichever actor is free, and
    results come in the order in which they are done: a slow episode holds nobody up.

    The actor replaces an environment that raises or returns NaN, and truncates an episode that does not end
    in `episode_steps_max` steps. The simulator replaces an actor that dies, or whose request takes longer
    than `deadline` seconds, with all of its environments, and tries the request again. `failures` tells
    of all.

    `actor_options` go to the actors, such as `{"num_cpus": 1}`.
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        *,
        num_actors: int | None = None,
        envs_per_actor: int = 1,
        seed: int | None = None,
        deadline: float = 300.0,
        episode_steps_max: int = 100_000,
        actor_options: Mapping[str, Any] | None = None,
    ) -> None:
        import_gymnasium()
        if not isinstance(env, str) and not callable(env):
            raise TypeError(
                f"env must be an id or a function that makes an environment, got {env!r}"
                '\nhint: give an id such as "CartPole-v1", a class or a function'
            )
        if num_actors is None:
            num_actors = max(1, int(aktis.cluster_resources().get("CPU", 1)))
        num_actors = checked_count("num_actors", num_actors)
        if isinstance(deadline, bool) or not isinstance(deadline, int | float):
            raise TypeError(f"deadline must be a number of seconds, got {deadline!r}\nhint: deadline=300.0")
        if not deadline > 0:
            raise ValueError(
                f"deadline must be a positive number of seconds, got {deadline!r}"
                "\nhint: give seconds, e.g. deadline=60"
            )
        self._env, self._envs_per_actor = env, checked_count("envs_per_actor", envs_per_actor)
        self._seed, self._deadline = checked_seed(seed), float(deadline)
        self._episode_steps_max = checked_count("episode_steps_max", episode_steps_max)
        # Actors hold no CPU, so one node would have room for all of them.
        self._options = {"scheduling_strategy": "SPREAD", **(actor_options or {})}
        self._generations = [0] * num_actors
        self._actors = [self._new_actor(number) for number in range(num_actors)]
        self._idle: deque[int] = deque(range(num_actors))
        self._waiting: deque[_Request] = deque()
        self._running: dict[Any, _Running] = {}
        self._failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)
        self._spaces: tuple[Any, Any] | None = None
        self._closed = False
        #: How many failures there were in all.
        self.num_failures = 0
        #: How many steps the collected results took.
        self.num_steps = 0

    # --- requests -----------------------------------------------------------------------------------

    def submit(
        self,
        policy: Any = None,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        count: int = 1,
        with_next: bool = False,
        tag: Any = None,
    ) -> None:
        """Asks `count` times for a fragment of `steps` steps of an actor's environments, or for `episodes`.

        `policy` takes observations `[N, ...]` and returns actions `[N, ...]`, or a pair of those and a dict
        of more arrays `[N, ...]` for the fragment. `MlpPolicy` is one; `None` stands for random actions.
        It may be a reference, so that one `aktis.put` serves many requests. Each request works on a copy;
        where the policy has a method `seed`, the actor calls it first with a seed of its own.

        `tag` is in the results of these requests, to know them again. A fragment goes on where the last one
        of its actor ended; requests for episodes begin new ones.
        """
        self._require_open()
        if (steps is None) == (episodes is None):
            raise ValueError("give either steps or episodes\nhint: submit(policy, steps=100)")
        steps = None if steps is None else checked_count("steps", steps)
        episodes = None if episodes is None else checked_count("episodes", episodes)
        count = checked_count("count", count)
        if policy is not None and not isinstance(policy, aktis.ObjectRef):
            if not callable(policy):
                raise TypeError(
                    f"policy must be callable, got {type(policy).__name__}\n"
                    "hint: MlpPolicy(layers) makes one of layers"
                )
            if count > 1:
                policy = aktis.put(policy)
        request = (
            _Request("fragment", (policy, steps, with_next), 0, tag)
            if steps is not None
            else _Request("episodes", (policy, episodes), 0, tag)
        )
        self._waiting.extend([request] * count)
        self._start()

    @property
    def num_pending(self) -> int:
        """How many results are still to be collected."""
        return len(self._waiting) + len(self._running)

    def collect(self, timeout: float | None = None) -> dict[str, Any]:
        """The next result that is done, waiting for it: a dict of arrays.

        A fragment has `observations`, `actions`, `rewards`, `terminations`, `truncations` and `valid`, all
        `[steps, environments, ...]`, then what the policy added, and `last_observations`. A row is not valid
        where the environment failed. With `with_next`, `next_observations` are the true successors. Every
        result has `episode_returns` and `episode_lengths` of episodes that ended, `steps`, `actor` and `tag`.

        Raises `TimeoutError` if nothing is done after `timeout` seconds, an error of the policy as it is, and
        `SimulationError` where environments fail again and again; the other requests go on.
        """
        self._require_open()
        if not self.num_pending:
            raise ValueError("nothing has been submitted\nhint: submit(policy, steps=100) comes first")
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            now = time.monotonic()
            next_deadline = min(running.until for running in self._running.values())
            limit = next_deadline if until is None else min(next_deadline, until)
            ready, _ = aktis.wait(list(self._running), timeout=max(0.0, limit - now))
            if ready:
                result = self._finish(ready[0])
                if result is not None:
                    return result
                continue
            now = time.monotonic()
            for ref in [ref for ref, running in self._running.items() if running.until <= now]:
                seconds = f"a request was not done after {self._deadline:g} s"
                self._replace(ref, "hung", seconds)
            if until is not None and now >= until:
                raise TimeoutError(
                    f"no result after {timeout:g} s; {self.num_pending} are pending"
                    "\nhint: raise timeout, or look at `failures` for environments that do not answer"
                )

    def run(
        self,
        policy: Any = None,
        *,
        steps: int | None = None,
        episodes: int | None = None,
        count: int,
        with_next: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Submits `count` requests and gives their results as they come."""
        self.submit(policy, steps=steps, episodes=episodes, count=count, with_next=with_next)
        for _ in range(count):
            yield self.collect()

    # --- what became of it --------------------------------------------------------------------------

    @property
    def failures(self) -> list[Failure]:
        """The latest failures of environments and actors, at most 1000."""
        return list(self._failures)

    @property
    def observation_space(self) -> Any:
        """The space of one environment's observations."""
        return self._described()[0]

    @property
    def action_space(self) -> Any:
        """The space of one environment's actions."""
        return self._described()[1]

    def close(self) -> None:
        """Ends the actors; requests that are pending are dropped."""
        if not self._closed:
            self._closed = True
            self._waiting.clear()
            self._running.clear()
            for actor in self._actors:
                aktis.kill(actor)

    def __enter__(self) -> "Simulator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError(
                "the simulator is closed"
                "\nhint: make a new Simulator, or use it before the end of its `with` block"
            )

    def _described(self) -> tuple[Any, Any]:
        self._require_open()
        if self._spaces is None:
            try:
                spaces: tuple[Any, Any] = aktis.get(self._actors[0].describe.remote(), timeout=self._deadline)
            except (ActorDiedError, WorkerCrashedError) as error:
                raise SimulationError(f"actor 0 died: {with_hint(str(error))}") from error
            self._spaces = spaces
        return self._spaces

    def _new_actor(self, number: int) -> Any:
        # Environments of other actors and of other generations have other seeds.
        generation = self._generations[number]
        seed = self._seed + (generation * len(self._generations) + number) * 1000 * self._envs_per_actor
        actor_class: Any = SimulatorActor
        return actor_class.options(**self._options).remote(
            self._env, number, self._envs_per_actor, seed % 2**31, self._episode_steps_max
        )

    def _start(self) -> None:
        """Gives requests to idle actors."""
        while self._idle and self._waiting:
            number, request = self._idle.popleft(), self._waiting.popleft()
            ref = getattr(self._actors[number], request.method).remote(*request.arguments)
            self._running[ref] = _Running(number, request, time.monotonic() + self._deadline)

    def _finish(self, ref: Any) -> dict[str, Any] | None:
        """The result of a call that is done, or `None` if it is tried again."""
        try:
            result: dict[str, Any] = aktis.get(ref)
        except (ActorDiedError, WorkerCrashedError) as error:
            self._replace(ref, "died", str(error))
            return None
        except BaseException:
            self._idle.append(self._running.pop(ref).number)
            self._start()
            raise
        running = self._running.pop(ref)
        result["tag"] = running.request.tag
        self._idle.append(running.number)
        self._start()
        for failure in result.pop("failures"):
            self._record(failure)
        result["episode_returns"] = np.array(result["episode_returns"], np.float64)
        result["episode_lengths"] = np.array(result["episode_lengths"], np.int64)
        self.num_steps += result["steps"]
        return result

    def _replace(self, ref: Any, kind: str, text: str) -> None:
        """Replaces the actor of a call that does not come back, and tries the request again."""
        number, request, _ = self._running.pop(ref)
        self._record(Failure(kind, number, None, text))
        try:
            aktis.kill(self._actors[number])
        except ActorDiedError:
            pass
        self._generations[number] += 1
        self._actors[number] = self._new_actor(number)
        self._idle.append(number)
        request = request._replace(attempts=request.attempts + 1)
        if request.attempts >= ATTEMPTS_MAX:
            self._start()
            raise SimulationError(
                f"a request was tried {ATTEMPTS_MAX} times; at last its actor {kind}: {with_hint(text)}"
            )
        self._waiting.appendleft(request)
        self._start()

    def _record(self, failure: Failure) -> None:
        self._failures.append(failure)
        self.num_failures += 1


def with_hint(text: str) -> str:
    """What an actor died of, with its own hint if it has one."""
    text = text.rstrip()
    if "\nhint: " in text:
        return text
    hint = "raise deadline if the environment is slow; see whether it works alone"
    if "out of memory" in text:
        hint = "lower envs_per_actor or num_actors, or let the environment need less memory"
    return f"{text}\nhint: {hint}"
