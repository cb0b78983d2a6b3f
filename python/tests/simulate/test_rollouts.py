"""Rollouts: what they compute, how they go on, and what they refuse."""

import itertools
from typing import Any

import numpy as np
import pytest

from aktis import simulate
from aktis.simulate import Rollouts, evaluate_population


def network(*widths: int, scale: float = 0.5) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(sum(widths))
    return [
        (random.normal(0, scale, (outputs, inputs)).astype(np.float32), random.normal(0, scale, outputs))
        for inputs, outputs in itertools.pairwise(widths)
    ]


def exactly(layers: Any, inputs: Any, activation: Any = np.tanh) -> Any:
    """The network's outputs in double precision."""
    for number, (weight, bias) in enumerate(layers):
        inputs = inputs @ weight.astype(np.float64).T + bias
        if number < len(layers) - 1:
            inputs = activation(inputs)
    return inputs


@pytest.mark.parametrize("num_envs", [1, 3, 5, 70])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_values_and_probabilities_are_the_networks(num_envs: int, activation: Any) -> None:
    actor, critic = network(6, 33, 17, 3), network(6, 64, 1)
    rollouts = Rollouts("Acrobot-v1", num_envs, seed=3)
    found = rollouts.collect(20, actor, critic, activation=activation)
    function = np.tanh if activation == "tanh" else lambda x: np.maximum(x, 0)
    logits = exactly(actor, found["observations"], function)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, found["actions"][..., None], -1)[..., 0]
    np.testing.assert_allclose(found["log_probs"], chosen, rtol=0, atol=2e-5)
    values = exactly(critic, found["observations"], function)[..., 0]
    np.testing.assert_allclose(found["values"], values, rtol=0, atol=2e-5)
    last = exactly(critic, found["last_observations"], function)[..., 0]
    np.testing.assert_allclose(found["next_values"][-1], last, rtol=0, atol=2e-5)


def test_choices_are_drawn_with_their_probabilities() -> None:
    actor = [(np.zeros((3, 6), np.float32), np.log(np.array([0.1, 0.6, 0.3])))]
    actions = Rollouts("Acrobot-v1", 64, seed=1).collect(2000, actor)["actions"]
    shares = np.bincount(actions.ravel(), minlength=3) / actions.size
    np.testing.assert_allclose(shares, [0.1, 0.6, 0.3], atol=0.006)


def test_numbers_are_drawn_around_the_outputs() -> None:
    actor = [(np.zeros((1, 3), np.float32), np.array([0.7]))]
    rollouts = Rollouts("Pendulum-v1", 50, seed=1)
    found = rollouts.collect(1000, actor, distribution="gaussian", log_std=[-1.0])
    actions = found["actions"]
    assert actions.shape == (1000, 50, 1) and actions.dtype == np.float32
    assert abs(actions.mean() - 0.7) < 0.01 and abs(actions.std() - np.exp(-1)) < 0.01
    exact = -0.5 * ((actions[..., 0] - 0.7) / np.exp(-1)) ** 2 + 1 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(found["log_probs"], exact, rtol=0, atol=1e-4)
    greedy = rollouts.collect(3, actor, distribution="greedy")
    np.testing.assert_allclose(greedy["actions"], 0.7)


def test_epsilon_is_the_probability_of_any_choice() -> None:
    actor = [(np.zeros((3, 6), np.float32), np.array([0.0, 2.0, 1.0]))]
    rollouts = Rollouts("Acrobot-v1", 64, seed=1)
    found = rollouts.collect(1000, actor, distribution="epsilon_greedy", epsilon=0.3)
    shares = np.bincount(found["actions"].ravel(), minlength=3) / found["actions"].size
    np.testing.assert_allclose(shares, [0.1, 0.8, 0.1], atol=0.006)
    np.testing.assert_allclose(
        np.exp(found["log_probs"]), np.where(found["actions"] == 1, 0.8, 0.1), atol=1e-6
    )


def test_a_fragment_is_what_the_vector_environment_does() -> None:
    found = Rollouts("CartPole-v1", 5, seed=7).collect(300, network(4, 8, 2), with_next=True)
    envs = simulate.make_vec("CartPole-v1", 5, seed=7, autoreset_mode="SameStep")
    observations, returns, lengths = envs.reset()[0], np.zeros(5), []
    for step in range(300):
        np.testing.assert_array_equal(found["observations"][step], observations)
        observations, rewards, terminated, truncated, infos = envs.step(found["actions"][step])
        np.testing.assert_array_equal(found["rewards"][step], rewards)
        np.testing.assert_array_equal(found["terminations"][step], terminated)
        np.testing.assert_array_equal(found["truncations"][step], truncated)
        ended = terminated | truncated
        successors = observations.copy()
        for index in np.flatnonzero(ended):
            successors[index] = infos["final_obs"][index]
        np.testing.assert_array_equal(found["next_observations"][step], successors)
        returns += rewards
        lengths += list(returns[ended])
        returns[ended] = 0
    np.testing.assert_array_equal(found["last_observations"], observations)
    np.testing.assert_array_equal(found["episode_lengths"], lengths)
    np.testing.assert_array_equal(found["episode_returns"], lengths)
    assert len(lengths) > 10


def test_truncated_episodes_have_the_value_of_their_last_observation() -> None:
    critic = network(3, 16, 1)
    rollouts = Rollouts("Pendulum-v1", 3, seed=2)
    actor = network(3, 1)
    found = rollouts.collect(200, actor, critic, distribution="greedy", with_next=True)
    assert found["truncations"][-1].all() and not found["terminations"].any()
    exact = exactly(critic, found["next_observations"])[..., 0]
    np.testing.assert_allclose(found["next_values"], exact, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(found["next_values"][:-1], found["values"][1:])
    assert (found["next_observations"][-1] != found["last_observations"]).any()
    terminated = Rollouts("CartPole-v1", 3, seed=2).collect(100, network(4, 2), network(4, 1))
    assert terminated["terminations"].any()
    assert (terminated["next_values"][terminated["terminations"]] == 0).all()


def test_fragments_continue_and_a_state_resumes_exactly() -> None:
    actor = network(4, 16, 2)
    whole = Rollouts("CartPole-v1", 70, seed=5).collect(60, actor)
    rollouts = Rollouts("CartPole-v1", 70, seed=5)
    first = rollouts.collect(25, actor)
    state = rollouts.state()
    second = rollouts.collect(35, actor)
    for name in ("observations", "actions", "log_probs", "rewards"):
        np.testing.assert_array_equal(np.concatenate([first[name], second[name]]), whole[name])
    resumed = Rollouts("CartPole-v1", 70, seed=99)
    resumed.collect(3, actor)
    resumed.set_state(state)
    again = resumed.collect(35, actor)
    for name, array in second.items():
        np.testing.assert_array_equal(array, again[name])


def test_states_of_something_else_are_refused() -> None:
    state = Rollouts("CartPole-v1", 2, seed=1).state()
    for other, message in [
        (Rollouts("CartPole-v1", 3, seed=1), "they are of 2 environments, and these are 3"),
        (Rollouts("Acrobot-v1", 2, seed=1), "they are of CartPole-v1, and these are Acrobot-v1"),
    ]:
        with pytest.raises(ValueError, match=f"{message}\nhint: "):
            other.set_state(state)
    rollouts = Rollouts("CartPole-v1", 2, seed=1)
    for bad in (b"", state[:40], state[:-1], state + b"x", b"\0" * 200):
        with pytest.raises(ValueError, match="are not a state of these environments"):
            rollouts.set_state(bad)
    assert rollouts.state() == state


def test_an_evaluation_plays_whole_episodes_and_disturbs_nothing() -> None:
    rollouts = Rollouts("CartPole-v1", 8, seed=1)
    before = rollouts.state()
    lean = [(np.array([[0, 0, -1, -1], [0, 0, 1, 1]], np.float32), np.zeros(2, np.float32))]
    returns, lengths = rollouts.evaluate(21, lean, seed=4)
    assert len(returns) == 21 and (returns == lengths).all() and (lengths > 100).all()
    np.testing.assert_array_equal(rollouts.evaluate(21, lean, seed=4)[0], returns)
    assert rollouts.state() == before


def test_a_population_plays_the_same_episodes() -> None:
    policies = [network(4, 8, 2, scale=scale) for scale in (0.1, 0.5, 1.0)]
    returns, steps = evaluate_population("CartPole-v1", policies, 5, seed=3)
    rollouts = Rollouts("CartPole-v1", 5, seed=0)
    expected = [rollouts.evaluate(5, policy, seed=3)[0].mean() for policy in policies]
    np.testing.assert_array_equal(returns, expected)
    assert steps == 5 * returns.sum()
    rows = [np.concatenate([part.ravel() for layer in policy for part in layer]) for policy in policies]
    again, _ = evaluate_population("CartPole-v1", np.stack(rows), 5, sizes=[4, 8, 2], seed=3)
    np.testing.assert_array_equal(returns, again)
    with pytest.raises(ValueError, match="have 58 parameters, got 57"):
        evaluate_population("CartPole-v1", np.zeros((2, 57)), sizes=[4, 8, 2])
    with pytest.raises(ValueError, match="policy 1: layer 0: weight\\[1, 2\\] is NaN"):
        bad = np.zeros((2, 58))
        bad[1, 6] = np.nan
        evaluate_population("CartPole-v1", bad, sizes=[4, 8, 2])


def test_bad_networks_are_refused_by_name() -> None:
    rollouts = Rollouts("CartPole-v1", 2, seed=1)
    good = network(4, 8, 2)

    def refuse(message: str, actor: Any = good, critic: Any = None, **kwargs: Any) -> None:
        with pytest.raises((ValueError, TypeError), match=message):
            rollouts.collect(2, actor, critic, **kwargs)

    refuse("actor: inputs: 3, and 4 are needed\nhint: ", network(3, 2))
    refuse("actor: outputs: 5, and 2 are needed\nhint: ", network(4, 5))
    refuse("critic: outputs: 2, and 1 are needed", critic=good)
    refuse("actor: layer 1: 7 inputs, and layer 0 has 8 outputs", network(4, 8) + network(7, 2))
    refuse("number of layers must be at least 1", [])
    refuse("layer 0: the weight has 1 dimensions", [(np.zeros(8), np.zeros(2))])
    refuse("layer 0 must be a pair", [np.zeros(8)])
    refuse("activation must be 'tanh' or 'relu', got \"gelu\"", activation="gelu")
    refuse('no distribution "beta"', distribution="beta")
    refuse("gaussian does not fit these actions", distribution="gaussian", log_std=[0.0])
    refuse("needs log_std", distribution="gaussian")
    refuse("epsilon: must be from 0 to 1, got 1.5", distribution="epsilon_greedy", epsilon=1.5)
    weight = np.zeros((2, 4), np.float32)
    weight[1, 3] = np.nan
    refuse("actor: layer 0: weight\\[1, 3\\] is NaN\nhint: ", [(weight, np.zeros(2))])
    refuse("critic: layer 0: bias\\[0\\] is inf", critic=[(np.zeros((1, 4)), np.array([np.inf]))])
    huge = [(np.full((2, 4), 3e38, np.float32), np.zeros(2)), (np.full((2, 2), 3e38), np.zeros(2))]
    refuse(
        "actor's output for environment 0 at step 0 is not a finite number\nhint: ", huge, activation="relu"
    )
    with pytest.raises(ValueError, match='no built-in environment "Nothing-v0"\nhint: '):
        Rollouts("Nothing-v0", 2, seed=1)
    with pytest.raises(ValueError, match="num_envs must be at least 1, got -1"):
        Rollouts("CartPole-v1", -1)
    with pytest.raises(ValueError, match="number of environments must be at least 1 and at most 1048576"):
        Rollouts("CartPole-v1", 2**21)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        rollouts.collect(0, good)
    assert rollouts.collect(5, good)["rewards"].shape == (5, 2), "none of this has done harm"
