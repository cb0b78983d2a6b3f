"""What a user does with a policy beside training it: act, draw, load it alone, keep the best, go on."""

import csv
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from tiny import Corridor, Reach

import aktis
import aktis.rl
from aktis.rl.population import Evaluator
from aktis.rl.samplers import TorchSampler

SMALL: dict[str, Any] = {"seed": 1, "actors": 0, "total_steps": 64}
STEPS: dict[str, Any] = {"num_envs": 2, "rollout_steps": 16}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "PPO": STEPS,
    "DQN": {**STEPS, "learning_starts": 16, "gradient_steps": 2, "hidden": (8,)},
    "IMPALA": STEPS,
    "ES": {"pairs": 2, "episodes_per_policy": 1, "hidden": (4,)},
}
each_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def make(name: str, env: Any, **more: Any) -> Any:
    return getattr(aktis.rl, name)(env, **{**SMALL, **ALGORITHMS[name], **more})


class Shifted(Corridor):
    """Its cells are numbered from 3 to 9."""

    observation_space = Discrete(7, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        cell, info = super().reset(seed=seed)
        return cell + 3, info

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        cell, *rest = super().step(action)
        return cell + 3, *rest  # type: ignore[return-value]


@each_algorithm
def test_a_policy_is_loaded_alone_and_acts_alike(name: str, tmp_path: Path) -> None:
    one = make(name, Shifted, directory=tmp_path)
    one.train()
    policy = pickle.loads(pickle.dumps(aktis.rl.load_policy(tmp_path / "checkpoint.aktis")))
    assert not aktis.is_initialized(), "a policy needs no session"
    cells = np.arange(3, 10)
    expected = [one.act(cell) for cell in cells]
    assert [policy.act(cell) for cell in cells] == expected and set(expected) <= {5, 6}
    assert policy.act(cells).tolist() == one.act(cells).tolist() == expected
    for wrong in (2, 10, [3, 10]):
        with pytest.raises(aktis.rl.SpaceError, match=r"a whole number from 3 to 9, got(.|\n)*\nhint: "):
            policy.act(wrong)


def test_continuous_actions_have_the_form_of_the_space(tmp_path: Path) -> None:
    one = aktis.rl.PPO(Reach, **SMALL, **STEPS)
    one.save(tmp_path / "saved")
    policy = aktis.rl.load_policy(tmp_path / "saved")
    observations = np.linspace(-1, 1, 6).reshape(3, 2, 1)
    single, batch = policy.act(observations[0]), policy.act(observations)
    assert single.shape == (1,) and batch.shape == (3, 1) and batch.dtype == np.float32
    assert np.allclose(batch[0], single) and Reach.action_space.contains(single)
    drawn = [float(policy.act(observations[0], greedy=False)[0]) for _ in range(9)]
    assert len(set(drawn)) > 1 and policy.act(observations[0]) == single
    for wrong in (np.zeros(2), np.zeros((2, 2, 2)), "left"):
        with pytest.raises(aktis.rl.SpaceError, match=r"an observation of Reach (.|\n)*\nhint: "):
            policy.act(wrong)


def test_a_model_of_ones_own_has_to_be_given_again(tmp_path: Path) -> None:
    def model() -> Any:
        torch.manual_seed(3)
        return torch.nn.Linear(7, 2)

    one = make("DQN", Corridor, model=model())
    one.save(tmp_path / "saved")
    assert aktis.rl.load_policy(tmp_path / "saved", model=model()).act(3) == one.act(3)
    with pytest.raises(aktis.rl.CheckpointError, match=r"does not fit the model(.|\n)*\nhint: .*load_policy"):
        aktis.rl.load_policy(tmp_path / "saved")


def bounded(low: float, high: float) -> Any:
    class Bounded(Reach):
        action_space = Box(low, high, (1,), np.float32)

    return Bounded


@pytest.mark.parametrize(("low", "high"), [(0, 1000), (5, 6), (-0.01, 0.01)])
@pytest.mark.parametrize("name", ["PPO", "IMPALA", "ES"])
def test_actions_that_need_scaling_are_a_warning(name: str, low: float, high: float) -> None:
    with pytest.warns(UserWarning, match=rf"actions reach from {low:g} to {high:g}(.|\n)*RescaleAction"):
        make(name, bounded(low, high))


def test_usual_actions_are_no_warning(recwarn: Any) -> None:
    for low, high in ((-1, 1), (0, 1), (-0.4, 0.4), (-np.inf, np.inf)):
        make("PPO", bounded(low, high))
    make("PPO", Corridor)
    assert not recwarn.list


@each_algorithm
def test_training_goes_on_for_more_steps(name: str) -> None:
    one = make(name, Corridor, target_return=-1000.0, target_episodes=1)
    first = one.train()
    assert first.solved and one.train().steps == first.steps
    more = one.train(steps=200)
    assert first.steps + 200 <= more.steps < first.steps + 400
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(aktis.rl.ConfigError, match="steps must be an integer of at least 1"):
            one.train(steps=wrong)


@each_algorithm
def test_the_learning_rate_falls(name: str, tmp_path: Path) -> None:
    rates = {}
    for anneal in (False, True):
        folder = tmp_path / str(anneal)
        make(name, Corridor, anneal=anneal, total_steps=400, learning_rate=0.01, directory=folder).train()
        rows = csv.DictReader((folder / "progress.csv").open(newline=""))
        rates[anneal] = [float(row["learning_rate"]) for row in rows if row["learning_rate"]]
    assert set(rates[False]) == {0.01}
    assert rates[True] == sorted(rates[True], reverse=True) and 0 < rates[True][-1] < 0.006


def test_the_best_evaluation_is_kept(tmp_path: Path) -> None:
    found = iter([1.0, 3.0, 2.0])

    class Judged(aktis.rl.PPO):
        def evaluate(self, *arguments: Any, **options: Any) -> Any:
            return aktis.rl.Evaluation(np.full(1, next(found)), np.ones(1))

    settings: dict[str, Any] = {**SMALL, **STEPS, "total_steps": 96, "evaluation_interval": 32}
    result = Judged(Corridor, directory=tmp_path, **settings).train()
    assert result.evaluation_return == 2.0 and result.best_checkpoint == tmp_path / "best.aktis"
    best = aktis.rl.PPO.load(result.best_checkpoint, Corridor)
    assert best.iteration == 2 and best.evaluation_return == 3.0
    again = aktis.rl.PPO.load(tmp_path / "checkpoint.aktis", Corridor)
    assert again.iteration == 3 and again.best_evaluation == 3.0
    # Elsewhere, the run has no better one yet.
    again.directory = tmp_path / "elsewhere"
    assert again.train().best_checkpoint is None


def test_passes_end_when_the_policy_has_moved(tmp_path: Path) -> None:
    settings = {**SMALL, **STEPS, "epochs": 9, "minibatch_size": 32, "learning_rate": 0.01}
    free = aktis.rl.PPO(Corridor, directory=tmp_path, **settings)
    bound = aktis.rl.PPO(Corridor, target_kl=1e-9, **settings)
    free.train()
    bound.train()
    # The first pass finds the policy where it was, the second one finds it moved.
    assert free.optimizer.count == 2 * 9 and bound.optimizer.count == 2 * 2
    for row in csv.DictReader((tmp_path / "progress.csv").open(newline="")):
        assert float(row["approx_kl"]) > 0 and float(row["explained_variance"]) <= 1


def test_a_truncated_episode_counts_on_and_a_terminated_one_does_not() -> None:
    class Ending(gymnasium.Env[Any, Any]):
        """Ends after two steps, by turns terminated and truncated."""

        observation_space = Box(-9, 9, (1,), np.float32)
        action_space = Discrete(2)
        episodes = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.at, self.episodes = 0.0, self.episodes + 1
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.at += 1
            over = self.at == 2
            odd = bool(self.episodes % 2)
            return np.full(1, self.at, np.float32), 1.0, over and odd, over and not odd, {}

    one = aktis.rl.PPO(Ending, **SMALL, **STEPS)
    sampler = TorchSampler(one.environment, one.policy, 1, 1)
    batch = sampler.collect(6, None)
    sampler.close()
    value = [float(one.policy.act(np.full((1, 1), at, np.float32), "greedy", None)[2][0]) for at in range(3)]
    assert batch["terminations"][:, 0].tolist() == [False, True, False, False, False, True]
    assert batch["truncations"][:, 0].tolist() == [False, False, False, True, False, False]
    expected = [value[1], 0.0, value[1], value[2], value[1], 0.0]
    assert batch["next_values"][:, 0] == pytest.approx(expected, abs=1e-6)


class Pictures(gymnasium.Env[Any, Any]):
    """Shows pictures of bytes."""

    observation_space = Box(0, 255, (4, 4, 1), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.integers(0, 256, (4, 4, 1), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, _ = self.reset()
        return seen, 1.0, bool(self.np_random.random() < 0.2), False, {}


def test_pictures_stay_bytes_in_the_replay_buffer(tmp_path: Path) -> None:
    one = make("DQN", Pictures, directory=tmp_path)
    one.train()
    observations, *_, successors, _ = one.buffer.columns
    assert observations.dtype == successors.dtype == np.uint8 and observations[: one.buffer.size].max() > 200
    again = aktis.rl.DQN.load(tmp_path / "checkpoint.aktis", Pictures)
    assert (again.buffer.columns[0] == observations).all()
    with pytest.raises(
        aktis.rl.ConfigError, match=r"no memory for .*GB, and this machine has .*\nhint: lower"
    ):
        make("DQN", Pictures, buffer_size=10**12)


class Counted(Corridor):
    """Counts how often it is made."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Counted.made += 1


def test_es_makes_an_environment_once() -> None:
    Counted.made = 0
    result = make("ES", Counted, pairs=4, total_steps=400).train()
    assert result.iterations > 1 and Counted.made == 2  # one of them told its spaces


def test_a_perturbed_network_is_that_of_torch() -> None:
    """The evaluator computes it without torch."""
    one = make("ES", Reach, hidden=(5, 3))
    sizes = [one.spaces.observation_size, 5, 3, one.spaces.action_size]
    evaluator = Evaluator(one.environment, one.spaces, None, sizes, "tanh", 2, 0.1)
    weights = np.random.default_rng(1).normal(size=len(one.weights)).astype(np.float32)
    act = evaluator._acting(weights)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), one.parameters)
    for observation in np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 1, 2):
        expected, _, _ = one.policy.act(observation, "greedy", None)
        assert np.allclose(act(observation), expected, atol=1e-6)
    whole, steps, _ = evaluator.play(weights, 3, 0, 6)
    parts = [evaluator.play(weights, 3, *share) for share in ((5, 6), (0, 3), (3, 5))]
    evaluator.close()
    assert whole.tolist() == [*parts[1][0], *parts[2][0], *parts[0][0]]
    assert steps == sum(part[1] for part in parts) == 6 * 2 * 10


def test_an_environment_takes_arguments_from_the_command_line(capsys: Any, tmp_path: Path) -> None:
    from aktis.rl.__main__ import main

    small = ["--total-steps", "32", "--num-envs", "2", "--rollout-steps", "16", "--actors", "0", "--quiet"]
    command = ["train", "ppo", "--env", "tiny:Corridor", "--directory", str(tmp_path), *small]
    assert main([*command, "--env-arg", "length=4"]) == 0
    saved = str(tmp_path / "checkpoint.aktis")
    assert (
        main(["evaluate", saved, "--env", "tiny:Corridor", "--env-arg", "length=1", "--episodes", "3"]) == 0
    )
    assert "mean length 1.0" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*command, "--env-arg", "length"])
    assert "argument --env-arg: must be NAME=VALUE, got 'length'" in capsys.readouterr().err
