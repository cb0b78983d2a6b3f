"""Environments in actors: results as they come, and what becomes of sick environments."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import aktis
from aktis.simulate import MlpPolicy, SimulationError, Simulator
from support import Latch

pytestmark = pytest.mark.usefixtures("shared_session")


class Line(gymnasium.Env):
    """Counts steps; what goes wrong, and when, is told to it."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, trouble: str = "", at: int = 3, length: int = 5, once: Path | None = None) -> None:
        self.trouble, self.at, self.length, self.once = trouble, at, length, once
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return np.zeros(2, np.float32), {}

    def is_due(self) -> bool:
        if self.count != self.at:
            return False
        if self.once is None:
            return True
        try:
            self.once.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def step(self, action: Any) -> Any:
        self.count += 1
        seen, reward = np.array([self.count, action], np.float32), 1.0
        if self.trouble and self.is_due():
            if self.trouble == "raises":
                raise ZeroDivisionError("the wheel came off")
            if self.trouble == "hangs":
                time.sleep(3600)
            if self.trouble == "dies":
                os._exit(3)
            if self.trouble == "observation":
                seen[0] = np.nan
            if self.trouble == "reward":
                reward = np.inf
            if self.trouble == "shape":
                seen = np.zeros(7, np.float32)
        return seen, reward, self.count >= self.length, False, {}


def test_a_fragment_has_what_the_environments_did() -> None:
    with Simulator(Line, num_actors=1, envs_per_actor=3, seed=1) as simulator:
        first, second = simulator.run(
            lambda seen: (seen[:, 0] % 2).astype(int), steps=7, count=2, with_next=True
        )
        assert simulator.observation_space == Line.observation_space
        assert simulator.num_steps == 42 and not simulator.failures
    counts = np.array([0, 1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(first["observations"][:, 1, 0], counts)
    np.testing.assert_array_equal(first["actions"][:, 2], counts % 2)
    np.testing.assert_array_equal(first["next_observations"][:, 0, 0], counts + 1)
    np.testing.assert_array_equal(first["terminations"][:, 0], counts == 4)
    assert first["valid"].all() and not first["truncations"].any()
    np.testing.assert_array_equal(first["last_observations"], second["observations"][0])
    assert first["observations"].shape == (7, 3, 2) and first["observations"].dtype == np.float32
    np.testing.assert_array_equal(first["episode_lengths"], [5, 5, 5])
    np.testing.assert_array_equal(first["episode_returns"], [5, 5, 5])


def test_episodes_are_shared_evenly() -> None:
    with Simulator("CartPole-v1", num_actors=2, envs_per_actor=3, seed=1) as simulator:
        results = list(simulator.run(episodes=7, count=4))
    for result in results:
        assert len(result["episode_lengths"]) == 7
        np.testing.assert_array_equal(result["episode_lengths"], result["episode_returns"])
        assert result["steps"] == result["episode_lengths"].sum()
    assert {result["actor"] for result in results} <= {0, 1}
    assert (results[0]["episode_lengths"] != results[1]["episode_lengths"]).any(), "seeds differ"


def test_a_slow_request_holds_nobody_up(tmp_path: Path) -> None:
    latch = Latch(tmp_path / "slow")

    def slow(seen: Any) -> Any:
        latch.wait()
        return np.zeros(len(seen), int)

    with Simulator(Line, num_actors=2, seed=1) as simulator:
        simulator.submit(slow, steps=1, tag="slow")
        for result in simulator.run(steps=10, count=5):
            assert simulator.num_pending >= 1 and result["tag"] is None
        with pytest.raises(TimeoutError, match="no result after 0 s; 1 are pending"):
            simulator.collect(timeout=0)
        latch.open()
        assert simulator.collect()["tag"] == "slow"
        assert simulator.num_pending == 0


@pytest.mark.parametrize(
    ("trouble", "kind", "text"),
    [
        ("raises", "raised", "the wheel came off"),
        ("observation", "not finite", "the observation is [nan"),
        ("reward", "not finite", "the reward is inf"),
        ("shape", "raised", "the observation has the shape (7,), and its space (2,)"),
    ],
)
def test_a_sick_environment_is_replaced_alone(tmp_path: Path, trouble: str, kind: str, text: str) -> None:
    once = tmp_path / "once"
    with Simulator(lambda: Line(trouble, once=once), num_actors=1, envs_per_actor=2, seed=1) as simulator:
        (result,) = simulator.run(steps=10, count=1, with_next=True)
        (failure,) = simulator.failures
    assert (failure.kind, failure.actor, failure.environment) == (kind, 0, 0) and text in failure.text
    np.testing.assert_array_equal(result["valid"][:, 0], np.arange(10) != 2)
    assert result["valid"][:, 1].all() and result["truncations"][2, 0]
    np.testing.assert_array_equal(result["observations"][:, 0, 0], [0, 1, 2, 0, 1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(result["observations"][:, 1, 0], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    assert np.isfinite(result["observations"]).all() and np.isfinite(result["rewards"]).all()
    assert result["steps"] == 19


@pytest.mark.parametrize(("trouble", "kind"), [("hangs", "hung"), ("dies", "died")])
def test_an_actor_that_does_not_answer_is_replaced(tmp_path: Path, trouble: str, kind: str) -> None:
    once = tmp_path / "once"
    deadline = 5.0 if trouble == "hangs" else 60.0
    with Simulator(lambda: Line(trouble, once=once), num_actors=2, deadline=deadline, seed=1) as simulator:
        results = list(simulator.run(steps=10, count=4))
        (failure,) = simulator.failures
        assert simulator.num_failures == 1
    assert [result["steps"] for result in results] == [10] * 4
    assert failure.kind == kind and failure.environment is None


def test_environments_that_always_fail_are_an_error() -> None:
    with Simulator(lambda: Line("raises", at=1), num_actors=1, seed=1) as simulator:
        simulator.submit(steps=100)
        with pytest.raises(SimulationError, match=r"(?s)21 failures.*the wheel came off.*hint: "):
            simulator.collect()
    with Simulator("Nothing-v9", num_actors=1) as simulator:
        simulator.submit(steps=1)
        with pytest.raises(SimulationError, match=r"(?s)tried 3 times.*Nothing"):
            simulator.collect()


class Nested(Line):
    """Has a space that is not one array."""

    observation_space = spaces.Dict({"x": Line.observation_space})  # type: ignore[assignment]


def test_spaces_that_are_not_one_array_are_named() -> None:
    with Simulator(Nested, num_actors=1) as simulator:
        with pytest.raises(SimulationError, match=r"(?s)is not one array\nhint: wrap the environment.*\Z"):
            _ = simulator.observation_space
        simulator.submit(steps=1)
        with pytest.raises(SimulationError, match=r"(?s)is not one array\nhint: wrap .*FlattenObservation\Z"):
            simulator.collect()


class Choosing(Line):
    """Has an action space that is not one array."""

    action_space = spaces.Tuple((Line.action_space, Line.action_space))  # type: ignore[assignment]


def test_actions_that_are_not_one_array_are_named() -> None:
    match = r"(?s)action space .* is not one array\nhint: .*ActionWrapper"
    with Simulator(Choosing, num_actors=1) as simulator, pytest.raises(SimulationError, match=match):
        _ = simulator.action_space


class Hungry(Line):
    """Asks for more memory than there is, where `when` says."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when = when
        if when == "constructor":
            bytearray(1 << 60)

    def step(self, action: Any) -> Any:
        if self.when == "step":
            bytearray(1 << 60)
        return super().step(action)


@pytest.mark.parametrize("when", ["step", "constructor"])
def test_environments_without_memory_are_explained(when: str) -> None:
    with (
        Simulator(lambda: Hungry(when), num_actors=1) as simulator,
        pytest.raises(SimulationError, match=r"(?s)'out of memory'.*hint: lower envs_per_actor") as caught,
    ):
        next(simulator.run(steps=50, count=1))
    assert str(caught.value).rstrip().splitlines()[-1].startswith("hint: lower envs_per_actor")


def test_a_request_without_memory_is_explained_and_the_next_is_unharmed() -> None:
    with Simulator(Line, num_actors=1) as simulator:
        with pytest.raises(SimulationError, match=r"actor 0 has no memory for .* steps of 1 environments"):
            next(simulator.run(steps=1 << 50, count=1))
        assert next(simulator.run(steps=5, count=1))["steps"] == 5


def test_an_endless_episode_is_truncated_and_reported() -> None:
    with Simulator(lambda: Line(length=10**9), num_actors=1, episode_steps_max=20) as simulator:
        (result,) = simulator.run(episodes=2, count=1)
        kinds = [failure.kind for failure in simulator.failures]
    np.testing.assert_array_equal(result["episode_lengths"], [20, 20])
    assert kinds == ["endless", "endless"]


def test_errors_of_policies_are_raised_and_the_rest_goes_on() -> None:
    def broken(seen: Any) -> Any:
        raise LookupError("no weights")

    with Simulator("Pendulum-v1", num_actors=1, envs_per_actor=2, seed=1) as simulator:
        for policy, error, message in [
            (broken, LookupError, "no weights"),
            (lambda seen: np.zeros(3), ValueError, r"shape \(3,\)\nhint: 2 actions of Box"),
            (lambda seen: np.full((2, 1), np.nan), ValueError, "action for environment 0 is not finite"),
        ]:
            simulator.submit(policy, steps=3)
            with pytest.raises(error, match=message):
                simulator.collect()
        (result,) = simulator.run(steps=3, count=1)
        assert result["steps"] == 6 and simulator.num_failures == 0


def test_a_network_acts_and_judges() -> None:
    random = np.random.default_rng(1)
    actor = [(random.normal(size=(1, 3)), np.zeros(1))]
    critic = [(random.normal(size=(8, 3)), np.zeros(8)), (random.normal(size=(1, 8)), np.ones(1))]
    policy = aktis.put(MlpPolicy(actor, critic, distribution="gaussian", log_std=[-0.5]))
    with Simulator("Pendulum-v1", num_actors=1, envs_per_actor=2, seed=1) as simulator:
        result, next_result = simulator.run(policy, steps=201, count=2, with_next=True)
    assert (result["actions"][0] != next_result["actions"][0]).all()
    noise = (result["actions"] - result["observations"] @ actor[0][0].T.astype(np.float32)) / np.exp(-0.5)
    exact = (-0.5 * noise**2 + 0.5 - 0.5 * np.log(2 * np.pi))[..., 0]
    np.testing.assert_allclose(result["log_probs"], exact, atol=1e-3)
    assert np.unique(noise).size > 400, "no two draws are the same"
    assert abs(noise.mean()) < 0.2 and 0.8 < noise.std() < 1.2
    values = np.tanh(result["next_observations"] @ critic[0][0].T) @ critic[1][0].T + 1
    np.testing.assert_allclose(result["next_values"], values[..., 0], atol=1e-4)
    assert result["truncations"][199].all()
    np.testing.assert_allclose(result["next_values"][:199], result["values"][1:200], atol=1e-5)


def test_bad_requests_say_what_is_wrong() -> None:
    with pytest.raises(TypeError, match="env must be an id or a function"):
        Simulator(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="envs_per_actor must be at least 1, got 0"):
        Simulator(Line, envs_per_actor=0)
    with Simulator(Line, num_actors=1) as simulator:
        with pytest.raises(ValueError, match="either steps or episodes"):
            simulator.submit()
        with pytest.raises(TypeError, match="policy must be callable, got list"):
            simulator.submit([1], steps=1)
        with pytest.raises(ValueError, match="nothing has been submitted"):
            simulator.collect()
    with pytest.raises(RuntimeError, match="the simulator is closed"):
        simulator.submit(steps=1)
