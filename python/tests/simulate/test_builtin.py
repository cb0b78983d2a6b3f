"""The built-in environments are equal to Gymnasium's: episodes, rewards, ends and spaces."""

import doctest
import importlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from aktis import simulate

#: Those that Gymnasium has too.
IDS = [env_id for env_id in simulate.builtin_ids() if not env_id.startswith("aktis/")]
STEPS = 1000
TOLERANCE = 1e-6


def pair(env_id: str, seed: int, num_envs: int = 3, **kwargs: Any) -> tuple[Any, Any]:
    """The same environments, built in and Gymnasium's own."""
    ours = simulate.make_vec(env_id, num_envs, seed=seed, **kwargs)
    theirs = gymnasium.make_vec(env_id, num_envs, vectorization_mode="sync", vector_kwargs=kwargs)
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset(seed=seed)[0])
    return ours, theirs


def compare(ours: Any, theirs: Any, act: Callable[[Any], Any]) -> int:
    """Steps both with the same actions, and returns how many episodes have ended."""
    episodes = 0
    observations = theirs.reset(seed=5)[0]
    ours.reset(seed=5)
    for step in range(STEPS):
        actions = act(observations)
        mine, rewards, terminated, truncated, _ = ours.step(actions)
        observations, their_rewards, their_terminated, their_truncated, _ = theirs.step(actions)
        np.testing.assert_allclose(mine, observations, rtol=0, atol=TOLERANCE, err_msg=f"at step {step}")
        np.testing.assert_allclose(rewards, their_rewards, rtol=0, atol=TOLERANCE)
        np.testing.assert_array_equal(terminated, their_terminated)
        np.testing.assert_array_equal(truncated, their_truncated)
        assert mine.dtype == observations.dtype and rewards.dtype == their_rewards.dtype
        episodes += int(np.sum(terminated | truncated))
    return episodes


@pytest.mark.parametrize("env_id", IDS)
def test_random_actions_give_gymnasiums_episodes(env_id: str) -> None:
    ours, theirs = pair(env_id, seed=5)
    theirs.action_space.seed(1)
    assert compare(ours, theirs, lambda _: theirs.action_space.sample()) >= 3


def test_a_balanced_pole_stays_equal_until_the_time_limit() -> None:
    ours, theirs = pair("CartPole-v1", seed=5)

    def balance(observations: Any) -> Any:
        return (observations @ np.array([0.1, 0.3, 1.0, 0.6]) > 0).astype(np.int64)

    assert compare(ours, theirs, balance) <= 6, "the pole fell"


def test_a_swinging_car_reaches_the_goal_in_both() -> None:
    ours, theirs = pair("MountainCar-v0", seed=5)
    assert compare(ours, theirs, lambda seen: np.where(seen[:, 1] >= 0, 2, 0)) > 15


def test_actions_beyond_the_bounds_are_clipped_alike() -> None:
    for env_id in ("Pendulum-v1", "MountainCarContinuous-v0"):
        ours, theirs = pair(env_id, seed=5)
        compare(
            ours, theirs, lambda seen: (np.sign(seen[:, -1:]) * 3 * np.abs(seen[:, :1])).astype(np.float32)
        )


@pytest.mark.parametrize("env_id", IDS)
def test_spaces_and_time_limit_are_gymnasiums(env_id: str) -> None:
    ours, theirs = pair(env_id, seed=1)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.max_episode_steps == gymnasium.spec(env_id).max_episode_steps
    assert isinstance(ours, gymnasium.vector.VectorEnv)


def test_both_modes_of_autoreset_are_gymnasiums() -> None:
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        ours, theirs = pair("CartPole-v1", seed=2, autoreset_mode=mode)
        assert ours.metadata["autoreset_mode"] == mode
        actions, ends = np.array([1, 1, 0]), 0
        for _ in range(60):
            *mine, infos = ours.step(actions)
            *others, their_infos = theirs.step(actions)
            for a, b in zip(mine, others):
                np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)
            assert infos.keys() == their_infos.keys()
            if "final_obs" in infos:
                ends += 1
                np.testing.assert_array_equal(infos["_final_obs"], their_infos["_final_obs"])
                for a, b in zip(infos["final_obs"], their_infos["final_obs"]):
                    assert (a is None) == (b is None)
                    if a is not None:
                        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)
        assert (ends > 0) == (mode == AutoresetMode.SAME_STEP)


def test_a_seed_repeats_and_a_batch_does_not_depend_on_its_size() -> None:
    def play(num_envs: int) -> Any:
        envs = simulate.make_vec("Acrobot-v1", num_envs, seed=9)
        envs.reset()
        return np.stack([envs.step(np.full(num_envs, step % 3))[0][:2] for step in range(50)])

    np.testing.assert_array_equal(play(2), play(130))


def test_states_can_be_read_and_set() -> None:
    envs = simulate.make_vec("Pendulum-v1", 2, seed=1)
    envs.reset()
    observations = envs.set_states([[0.0, 1.0], [np.pi / 2, -1.0]])
    np.testing.assert_allclose(observations, [[1, 0, 1], [0, 1, -1]], atol=1e-6)
    np.testing.assert_array_equal(envs.states(), [[0.0, 1.0], [np.pi / 2, -1.0]])


def test_the_grid_world_has_a_shortest_way() -> None:
    envs = simulate.make_vec("aktis/GridWorld-v0", 100, seed=3, autoreset_mode="SameStep")
    seen = envs.reset()[0]
    returns, distances = np.zeros(100), 7 * np.abs(seen[:, :2] - seen[:, 2:]).sum(1)
    running = np.ones(100, bool)
    for _ in range(14):
        right, up = seen[:, 2] - seen[:, 0], seen[:, 3] - seen[:, 1]
        actions = np.select([right > 0, up > 0, right < 0], [0, 1, 2], 3)
        seen, rewards, terminated, _, _ = envs.step(actions)
        returns += rewards * running
        running &= ~terminated
    assert not running.any()
    np.testing.assert_allclose(returns, 1 - 0.01 * (distances - 1))
    assert envs.single_action_space.n == 4


def test_gymnasiums_own_environments_come_where_none_is_built_in() -> None:
    envs = simulate.make_vec("FrozenLake-v1", 2, seed=4)
    first = envs.reset()[0]
    assert envs.num_envs == 2 and first.shape == (2,)
    own = simulate.make_vec("CartPole-v1", 2, seed=4, vectorization_mode="sync")
    built_in = simulate.make_vec("CartPole-v1", 2, seed=4)
    assert "Sync" in repr(own) and "Builtin" in repr(built_in)
    np.testing.assert_array_equal(own.reset()[0], built_in.reset()[0])
    made = simulate.make_vec(lambda: gymnasium.make("CartPole-v1"), 2, seed=4)
    np.testing.assert_array_equal(made.reset()[0], built_in.reset(seed=4)[0])


def test_a_missing_gymnasium_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for use in (lambda: simulate.make_vec("CartPole-v1", 1), lambda: simulate.Simulator("CartPole-v1")):
        with pytest.raises(ImportError, match="needs Gymnasium, which is not installed\nhint: pip install"):
            use()
    assert simulate.Rollouts("CartPole-v1", 1, seed=1).num_choices == 2, "this needs none"


def test_bad_requests_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        simulate.make_vec("CartPole-v1", 0)
    with pytest.raises(TypeError, match="num_envs must be an integer, got 'x'"):
        simulate.make_vec("CartPole-v1", "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no built-in environment 'aktis/Nothing'\nhint: .*CartPole-v1"):
        simulate.make_vec("aktis/Nothing", 1)
    with pytest.raises(ValueError, match="seed must be from 0"):
        simulate.make_vec("CartPole-v1", 1, seed=-1)
    envs = simulate.make_vec("CartPole-v1", 3, seed=1)
    envs.reset()
    before = envs.states()
    with pytest.raises(
        ValueError, match="action of environment 1 is 2\nhint: actions are integers from 0 to 1"
    ):
        envs.step([0, 2, 0])
    with pytest.raises(ValueError, match="2 numbers for 3 environments"):
        envs.step([0, 1])
    with pytest.raises(TypeError, match="must be integers, got an array of float64"):
        envs.step([0.0, 1.0, 0.0])
    np.testing.assert_array_equal(envs.states(), before)
    pendulums = simulate.make_vec("Pendulum-v1", 2, seed=1)
    with pytest.raises(ValueError, match="action of environment 1 is NaN"):
        pendulums.step([[0.0], [np.nan]])
    assert not simulate.is_builtin("LunarLander-v3") and simulate.is_builtin("CartPole-v1")


@pytest.mark.parametrize("module", ["_builtin", "_make", "_population", "_rollouts"])
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"aktis.simulate.{module}"))
    assert result.attempted > 0 and result.failed == 0
