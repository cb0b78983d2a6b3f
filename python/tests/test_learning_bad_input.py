"""Wrong arguments to simulate, train, tune and rl: the error names them and gives a hint."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aktis import rl, simulate, train, tune

LAYERS = [(np.zeros((2, 4)), np.zeros(2))]


def rollouts() -> simulate.Rollouts:
    return simulate.Rollouts("CartPole-v1", 2, seed=1)


def ppo(**arguments: Any) -> rl.Algorithm:
    return rl.PPO("CartPole-v1", total_steps=10, **arguments)


CASES: list[tuple[Callable[[], Any], str]] = [
    (lambda: simulate.Rollouts(7, 2), "env_id must be the id of a built-in environment, got 7"),  # type: ignore
    (lambda: rollouts().collect(2, [("a", "b")]), "actor: layer 0 must be an array of numbers, got 'a'"),
    (lambda: rollouts().collect(2, LAYERS, epsilon="x"), "epsilon must be a number, got 'x'"),  # type: ignore
    (lambda: rollouts().set_state(5), "state must be bytes, got int"),  # type: ignore
    (lambda: simulate.evaluate_population("CartPole-v1", 5), "actors must be a list of policies"),
    (lambda: simulate.evaluate_population(5, [LAYERS]), "env_id must be the id"),  # type: ignore
    (lambda: simulate.Simulator("CartPole-v1", num_actors=1, deadline="x"), "deadline must be"),  # type: ignore
    (lambda: tune.randint(0.5, 2), "must be an integer, got 0.5"),  # type: ignore
    (lambda: tune.qrandint(0, 2.5), "must be an integer, got 2.5"),  # type: ignore
    (lambda: tune.lograndint(1, "a"), "must be an integer, got 'a'"),  # type: ignore
    (lambda: tune.qlograndint(None, 2, 1), "must be an integer, got None"),  # type: ignore
    (lambda: tune.randn(0, -1), "`sd` must be positive, got -1"),
    (lambda: tune.qrandn(0, "a", 1), "`sd` must be a number, got 'a'"),  # type: ignore
    (lambda: tune.choice(5), "`choice` takes a list of values, got 5"),  # type: ignore
    (lambda: tune.grid_search(5), "`grid_search` takes a list of values, got 5"),  # type: ignore
    (lambda: ppo().evaluate("x"), "episodes must be an integer of at least 1, got 'x'"),  # type: ignore
    (lambda: ppo().act("x"), "an observation of CartPole-v1 must be numbers, got 'x'"),
    (lambda: ppo().train(callback=5), "callback must be a function of the algorithm, got 5"),  # type: ignore
    (lambda: ppo(directory=5), "directory must be a path, got 5"),
    (lambda: ppo(num_envs=0), "PPOConfig.num_envs must be an integer of at least 1, got 0"),
    (lambda: simulate.make_vec("Nope-v1", 2), "there is no environment 'Nope-v1'"),
    (lambda: simulate.make_vec("CartPole-v1", 0), "num_envs must be at least 1, got 0"),
    (lambda: train.RunConfig(name=5), "`name` must be a text, got 5"),  # type: ignore
    (lambda: train.RunConfig(storage_path=5), "`storage_path` must be a path, got 5"),  # type: ignore
    (lambda: train.Checkpoint(5), "the path of a checkpoint must be a text or a path, got 5"),  # type: ignore
    (lambda: train.ScalingConfig(num_workers=0), "`num_workers` must be at least 1, got 0"),
    (lambda: tune.uniform(2, 1), "the lower bound must be below the upper one, got 2 and 1"),
    (lambda: rl.load(5), "a checkpoint must be given by its path, got 5"),  # type: ignore
]


@pytest.mark.parametrize(("call", "message"), CASES, ids=[message for _, message in CASES])
def test_a_wrong_argument_is_named_with_a_hint(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert message in str(caught.value)
    assert "\nhint: " in str(caught.value)


def test_arguments_of_an_environment_that_are_no_dict_are_named() -> None:
    with pytest.raises(rl.EnvironmentFault, match=r"env_kwargs must be a dict .*, got 5\nhint: "):
        ppo(env_kwargs=5)
