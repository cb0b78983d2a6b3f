"""What all algorithms share: the loop of `train`, evaluation, checkpoints, metrics and Ctrl-C.

An algorithm is a class with a `_setup`, an `_iterate` that collects and learns once, and the `_state` that
makes its checkpoints exact. Everything random comes from generators that are part of the state, or from seeds
that are derived from the configuration's seed and the iteration.
"""

import contextlib
import dataclasses
import json
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from aktis.rl import checkpoints, inference, metrics, samplers
from aktis.rl.config import Config
from aktis.rl.environments import Environment, Spaces
from aktis.rl.errors import CheckpointError, ConfigError, EnvironmentFault, ModelError, RLError
from aktis.rl.models import Policy, make_policy

#: Name of the latest checkpoint in a run's directory.
CHECKPOINT = "checkpoint.aktis"
#: Name of the checkpoint with the best evaluation.
BEST = "best.aktis"
TABLE = "progress.csv"

#: Faults of environments whose texts an algorithm keeps.
FAULTS_KEPT = 100


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes that a policy has played without learning."""

    returns: Any
    lengths: Any

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    def __repr__(self) -> str:
        low, high = float(np.min(self.returns)), float(np.max(self.returns))
        return (
            f"Evaluation(mean={self.mean:.1f}, std={self.std:.1f}, min={low:.1f}, max={high:.1f}, "
            f"episodes={len(self.returns)}, mean_length={float(np.mean(self.lengths)):.1f})"
        )


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How training ended."""

    #: Mean return of the latest training episodes; NaN if none has ended.
    mean_return: float
    #: Mean return of the latest evaluation; None without evaluations.
    evaluation_return: float | None
    #: Whether `target_return` was reached.
    solved: bool
    steps: int
    episodes: int
    iterations: int
    seconds: float
    #: The last checkpoint, if the run has a directory.
    checkpoint: Path | None
    #: Environments and workers that have failed and were replaced (`faults_max`).
    faults: int = 0
    #: The checkpoint with the best evaluation, if the run has a directory and evaluations.
    best_checkpoint: Path | None = None


class Algorithm:
    """The base class of PPO, DQN, ES and IMPALA.

    `env` is an id, a class or a function that makes an environment, with `env_kwargs` for it. `config` is the
    algorithm's configuration; fields can also be given by name. Without either, they are those that suit the
    environment. `model` is a module of torch, or a function that makes one from the spaces. With a
    `directory`, training writes checkpoints, a CSV file and an event file of TensorBoard there.
    """

    name: ClassVar[str]
    config_type: ClassVar[type[Config]]
    #: Settings that differ from the defaults, by id of the environment.
    tuned: ClassVar[dict[str, dict[str, Any]]] = {}
    #: What `_iterate` reports; "loss" is shown on the live line.
    columns: ClassVar[tuple[str, ...]] = ("loss",)
    #: Whether models also return the value of each observation.
    critic: ClassVar[bool] = False

    def __init__(
        self,
        env: str | Callable[..., Any],
        config: Config | None = None,
        *,
        model: Any = None,
        env_kwargs: dict[str, Any] | None = None,
        directory: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        if config is None:
            tuned = self.tuned.get(env, {}) if isinstance(env, str) else {}
            config = self.config_type.of({**tuned, **settings})
        elif not isinstance(config, self.config_type):
            raise ConfigError(
                f"config must be a {self.config_type.__name__}, got {type(config).__name__}"
                f"\nhint: {type(self).__name__}({env!r}, learning_rate=0.001) also works without one"
            )
        elif settings:
            config = self.config_type.of({**config.as_dict(), **settings})
        if directory is not None and not isinstance(directory, str | os.PathLike):
            raise ConfigError(f'directory must be a path, got {directory!r}\nhint: directory="runs/first"')
        self.config: Any = config
        self.environment = Environment.of(
            env, env_kwargs, config.episode_steps_max, config.step_deadline, config.faults_max
        )
        self.spaces: Spaces = self.environment.spaces()
        self.spaces.warn_of_bounds(self.environment.name)
        self.directory = None if directory is None else Path(directory)
        self.steps = 0
        self.iteration = 0
        self.episodes = 0
        self.seconds = 0.0
        #: How many environments and workers have failed and were replaced; texts of the latest.
        self.faults = 0
        self.latest_faults: deque[str] = deque(maxlen=FAULTS_KEPT)
        self.evaluation_return: float | None = None
        self.best_evaluation: float | None = None
        self.recent: deque[float] = deque(maxlen=config.target_episodes)
        self._sampler: samplers.Sampler | None = None
        self._sampler_state: Any = None
        self._resumed_at: int | None = None
        with _threads(config.threads), torch.random.fork_rng():
            torch.manual_seed(self._seed("model"))
            self.policy: Policy = self._setup(model)

    # --- for users ------------------------------------------------------------------------------------

    def train(
        self,
        *,
        steps: int | None = None,
        progress: bool | None = None,
        callback: Callable[[Self], object] | None = None,
    ) -> TrainResult:
        """Trains until `total_steps` or `target_return` is reached, or for so many more `steps` whatever
        these two say.

        Calls `callback` with this algorithm after each iteration; training ends when it returns True.

        Shows a live line if `progress` is true; if it is None, only on a terminal. Ctrl-C ends training after
        the current iteration, writes the checkpoint and raises KeyboardInterrupt; a second one raises at
        once.
        """
        if callback is not None and not callable(callback):
            raise ConfigError(
                f"callback must be a function of the algorithm, got {callback!r}"
                "\nhint: train(callback=lambda ppo: print(ppo.mean_return))"
            )
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise ConfigError(
                f"steps must be an integer of at least 1, got {steps!r}\nhint: train(steps=100_000)"
            )
        end = None if steps is None else self.steps + steps
        line = metrics.ProgressLine(progress)
        outputs = self._open_files()
        with _threads(self.config.threads), _interrupts() as interrupted, contextlib.ExitStack() as stack:
            stack.callback(self._close)
            for output in outputs:
                stack.callback(output.close)
            began, steps_before = time.perf_counter(), self.steps
            before = self.seconds
            saved_at, text = self.steps, ""
            stopped = False
            while not (self._done(end) or interrupted or stopped):
                try:
                    row = self._advance()
                except EnvironmentFault as fault:
                    self._save_before(fault)
                    raise
                self.seconds = before + time.perf_counter() - began
                row["steps_per_second"] = (self.steps - steps_before) / max(self.seconds - before, 1e-9)
                self._write(outputs, row)
                text = self._line(row)
                line.show(text)
                stopped = callback is not None and callback(self) is True
                if row["evaluation_return"] is not None:
                    self._keep_best(row["evaluation_return"])
                if self.directory and 0 < self.config.checkpoint_interval <= self.steps - saved_at:
                    self.save(self.directory / CHECKPOINT)
                    saved_at = self.steps
            if text:
                line.close(text)
            checkpoint = None
            if self.directory is not None:
                checkpoint = self.directory / CHECKPOINT
                self.save(checkpoint)
            if interrupted and not self._done(end):
                raise KeyboardInterrupt
        best = None
        # Without an evaluation, such a file is of another run.
        if self.directory is not None and self.best_evaluation is not None:
            best = self.directory / BEST
        return TrainResult(
            mean_return=self.mean_return,
            evaluation_return=self.evaluation_return,
            solved=self.solved,
            steps=self.steps,
            episodes=self.episodes,
            iterations=self.iteration,
            seconds=self.seconds,
            checkpoint=checkpoint,
            faults=self.faults,
            best_checkpoint=best if best is not None and best.exists() else None,
        )

    def evaluate(self, episodes: int = 100, *, seed: int | None = None, greedy: bool = True) -> Evaluation:
        """Plays whole episodes in fresh environments, with the likeliest actions or with sampled ones."""
        if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
            raise ConfigError(
                f"episodes must be an integer of at least 1, got {episodes!r}\nhint: evaluate(episodes=100)"
            )
        chosen = self._seed("evaluation", self.iteration) if seed is None else seed
        with _threads(self.config.threads):
            returns, lengths, faults = samplers.evaluate(
                self.environment, self.policy, episodes, chosen, greedy or not self.policy.critic
            )
        self._count_faults(faults)
        return Evaluation(returns, lengths)

    def act(self, observation: Any, *, greedy: bool = True) -> Any:
        """The action for one observation, or those for a batch of them, as the environment takes them.

        The likeliest action, or with `greedy=False` one that is drawn, with the generator of torch.
        """
        return inference.act(self.policy, self.environment.name, observation, greedy)

    @property
    def mean_return(self) -> float:
        """Mean return of the latest `target_episodes` training episodes; NaN before the first has ended."""
        return float(np.mean(self.recent)) if self.recent else math.nan

    @property
    def solved(self) -> bool:
        """Whether `target_return` is reached: by the latest evaluation and a second one that confirms it, if
        there are evaluations, else by `target_episodes` training episodes."""
        target = self.config.target_return
        if target is None:
            return False
        if self.config.evaluation_interval:
            return self.evaluation_return is not None and self.evaluation_return >= target
        return len(self.recent) == self.recent.maxlen and self.mean_return >= target

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint from which training continues as if it had not stopped."""
        source = self.environment.source
        sampler = self._sampler.state() if self._sampler is not None else self._sampler_state
        tree = {
            "algorithm": self.name,
            "environment": {
                "id": source if isinstance(source, str) else None,
                "name": self.environment.name,
                "arguments": self.environment.arguments if _plain(self.environment.arguments) else None,
            },
            "spaces": inference.spaces_as_dict(self.spaces),
            "config": self.config.as_dict(),
            "counters": {
                "steps": self.steps,
                "iteration": self.iteration,
                "episodes": self.episodes,
                "seconds": self.seconds,
                "faults": self.faults,
                "evaluation_return": self.evaluation_return,
                "best_evaluation": self.best_evaluation,
                "recent": list(self.recent),
            },
            "sampler": sampler,
            "state": self._state(),
        }
        checkpoints.save(path, tree)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        env: str | Callable[..., Any] | None = None,
        *,
        model: Any = None,
        env_kwargs: dict[str, Any] | None = None,
        directory: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> Self:
        """The algorithm as `save` left it. Give `env` and `model` again if they were your own.

        `settings` override those of the checkpoint: `PPO.load(path, total_steps=2_000_000).train()`.
        """
        tree = checkpoints.load(path)
        try:
            return cls._from_tree(path, tree, env, model, env_kwargs, directory, settings)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise CheckpointError(
                f"{path} lacks something that this version needs: {error!r}"
                "\nhint: train anew, or load it by the version that wrote it"
            ) from error

    @classmethod
    def _from_tree(
        cls, path: Any, tree: Any, env: Any, model: Any, env_kwargs: Any, directory: Any, settings: Any
    ) -> Self:
        if tree["algorithm"] != cls.name:
            raise CheckpointError(
                f"{path} is a checkpoint of {tree['algorithm']}, not of {cls.name}"
                f"\nhint: aktis.rl.load({str(path)!r})"
            )
        known = tree["environment"]
        if env is None and known["id"] is None:
            raise CheckpointError(
                f"{path} was trained on {known['name']}, which is not a registered id"
                "\nhint: give the class or function again: load(path, env=...)"
            )
        if env is None and env_kwargs is None:
            env_kwargs = known["arguments"]
        config = cls.config_type.of({**tree["config"], **settings})
        one = cls(env or known["id"], config, model=model, env_kwargs=env_kwargs, directory=directory)
        counters = tree["counters"]
        one.steps, one.iteration = counters["steps"], counters["iteration"]
        one.episodes, one.seconds = counters["episodes"], counters["seconds"]
        one.faults = counters.get("faults", 0)
        one.evaluation_return = counters["evaluation_return"]
        one.best_evaluation = counters.get("best_evaluation")
        one.recent.extend(counters["recent"])
        # Other environments, or another number of them, begin their episodes anew.
        same = all(getattr(config, name, None) == tree["config"].get(name) for name in ("num_envs", "actors"))
        if tree["sampler"] is not None and same and one.environment.name == known["name"]:
            one._sampler_state = tree["sampler"]
        one._resumed_at = one.iteration
        try:
            one._restore(tree["state"])
        except (RuntimeError, ValueError) as error:
            if isinstance(error, RLError):
                raise
            raise CheckpointError(
                f"{path} does not fit the model: {error}"
                "\nhint: give the model that was trained: load(path, model=...)"
            ) from error
        return one

    # --- for algorithms -------------------------------------------------------------------------------

    @classmethod
    def default_model(cls, config: Any, spaces: Spaces) -> Any:
        """The network that learns where the user gives no model."""
        raise NotImplementedError

    def _make_policy(self, model: Any) -> Policy:
        """The policy of the user's model or of the default one."""

        def default() -> Any:
            return self.default_model(self.config, self.spaces)

        return make_policy(self.name, model, self.spaces, default, critic=self.critic)

    def _setup(self, model: Any) -> Policy:
        """Makes the policy and what learns it."""
        raise NotImplementedError

    def _iterate(self) -> dict[str, Any]:
        """Collects and learns once; gives the figures of `columns`."""
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        """What `_restore` needs, beside the counters and the sampler."""
        raise NotImplementedError

    def _restore(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def _remaining(self) -> float:
        """The factor on what `anneal` lets fall."""
        return max(0.0, 1 - self.steps / self.config.total_steps) if self.config.anneal else 1.0

    def _seed(self, purpose: str, iteration: int = 0) -> int:
        """A seed for one purpose, derived from the configuration's."""
        words = [self.config.seed, int.from_bytes(purpose.encode()[:4]), iteration]
        return int(np.random.SeedSequence(words).generate_state(1)[0])

    def _open_sampler(self, count: int, actors: int | None) -> samplers.Sampler:
        """The sampler, made at the first call, where the last one stopped if its environments allow that."""
        if self._sampler is None:
            seed = self._seed("sampler", self._resumed_at or 0)
            self._sampler = samplers.make_sampler(self.environment, self.policy, count, seed, actors)
            if self._sampler_state is not None:
                try:
                    self._sampler.set_state(self._sampler_state)
                except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                    raise CheckpointError(
                        f"{self.environment.name} does not take the state that its checkpoint has: {error!r}"
                        "\nhint: load it with the environment that was trained"
                    ) from error
        return self._sampler

    def _count(self, batch: samplers.Batch) -> None:
        """Takes note of the steps, episodes and faults of a batch."""
        self.steps += batch["rewards"].size
        self._count_episodes(batch["episode_returns"])
        self._count_faults(batch.get("faults", ()))

    def _count_episodes(self, returns: Any) -> None:
        self.episodes += len(returns)
        self.recent.extend(float(one) for one in returns)

    def _count_faults(self, texts: Iterable[str], fault: EnvironmentFault | None = None) -> None:
        """Takes note of what was replaced; raises the latest fault if there are more than `faults_max`."""
        for text in map(str, texts):
            self.faults += 1
            self.latest_faults.append(text)
            if self.faults > self.config.faults_max:
                raise fault or EnvironmentFault(text)

    # --- the loop -------------------------------------------------------------------------------------

    def _done(self, end: int | None) -> bool:
        if end is not None:
            return self.steps >= end
        return self.steps >= self.config.total_steps or self.solved

    def _keep_best(self, evaluation: float) -> None:
        if self.best_evaluation is None or evaluation > self.best_evaluation:
            self.best_evaluation = evaluation
            if self.directory is not None:
                self.save(self.directory / BEST)

    def _advance(self) -> dict[str, Any]:
        before = self.steps
        row = self._iterate()
        self.iteration += 1
        loss = row.get("loss")
        if loss is not None and not math.isfinite(loss):
            raise ModelError(
                f"{self.name}: the loss is {loss} in iteration {self.iteration} (step {self.steps})"
                "\nhint: lower the learning rate, and look for divisions and logarithms in the model"
            )
        interval = self.config.evaluation_interval
        row["evaluation_return"] = None
        if interval and self.steps // interval > before // interval:
            episodes = self.config.evaluation_episodes
            self.evaluation_return = self.evaluate(episodes).mean
            if self.solved:
                # The best of many noisy evaluations is biased upwards, so fresh episodes must confirm it.
                again = self.evaluate(episodes, seed=self._seed("confirmation", self.iteration)).mean
                self.evaluation_return = min(self.evaluation_return, again)
            row["evaluation_return"] = self.evaluation_return
        return row

    def _close(self) -> None:
        if self._sampler is not None:
            self._resumed_at = self.iteration
            self._sampler_state = None
            with contextlib.suppress(Exception):  # after a fault its actors may be gone
                self._sampler_state = self._sampler.state()
            self._sampler.close()
            self._sampler = None

    def _save_before(self, fault: EnvironmentFault) -> None:
        """Writes what was learnt to the directory. The environments are in no state to go on from."""
        self._close()
        self._sampler_state = None
        if self.directory is not None and self.iteration > 0:
            path = self.directory / CHECKPOINT
            self.save(path)
            fault.add_note(
                f"training is saved up to step {self.steps:,}: aktis.rl.load({str(path)!r}) goes on"
            )

    def _open_files(self) -> list[Any]:
        if self.directory is None:
            return []
        self.directory.mkdir(parents=True, exist_ok=True)
        columns = (*metrics.COLUMNS, *self.columns)
        table = metrics.CsvFile(self.directory / TABLE, columns, self.iteration)
        return [table, metrics.TensorBoardFile(self.directory)]

    def _write(self, outputs: list[Any], row: dict[str, Any]) -> None:
        row |= {
            "iteration": self.iteration,
            "steps": self.steps,
            "seconds": self.seconds,
            "episodes": self.episodes,
            "faults": self.faults,
            "mean_return": None if math.isnan(self.mean_return) else self.mean_return,
        }
        for output in outputs:
            if isinstance(output, metrics.CsvFile):
                output.write(row)
            else:
                curves = {f"{self.name}/{name}": value for name, value in row.items() if value is not None}
                output.write(self.steps, curves)

    def _line(self, row: dict[str, Any]) -> str:
        parts = [
            f"{self.name} {self.environment.name}",
            f"step {self.steps:,}",
            f"return {self.mean_return:.1f}",
        ]
        if self.evaluation_return is not None:
            parts.append(f"evaluation {self.evaluation_return:.1f}")
        parts.append(f"{row['steps_per_second']:,.0f} steps/s")
        if row.get("loss") is not None:
            parts.append(f"loss {row['loss']:.3g}")
        if self.faults:
            parts.append(f"{self.faults} faults")
        return "  ".join([*parts, f"{self.seconds:.1f} s"])


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Sets the threads of torch for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A list that is empty until Ctrl-C. A second Ctrl-C raises KeyboardInterrupt."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def on_interrupt(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)


def _plain(value: Any) -> bool:
    """Whether a value comes back from JSON as it is."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
