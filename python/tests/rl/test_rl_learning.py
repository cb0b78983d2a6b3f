"""Learning: each algorithm learns a small problem in seconds, in this process and with actors."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from tiny import Corridor, Reach

import aktis.rl

#: The best policy in the corridor has a mean return of 0.65; a random one about -1.
CORRIDOR = 0.6

#: Always the same action gives at most a mean return of -5.
REACH = -3.5


def learns(algorithm: aktis.rl.Algorithm, target: float) -> None:
    result = algorithm.train()
    found = algorithm.evaluate(20).mean
    assert found >= target, (found, result)


@pytest.mark.parametrize("actors", [0, 2])
def test_ppo_learns_a_corridor(policy_session: None, actors: int) -> None:
    learns(
        aktis.rl.PPO(
            Corridor,
            seed=1,
            num_envs=8,
            actors=actors,
            rollout_steps=32,
            epochs=4,
            learning_rate=5e-3,
            total_steps=6_000,
        ),
        CORRIDOR,
    )


def test_dqn_learns_a_corridor() -> None:
    learns(
        aktis.rl.DQN(
            Corridor,
            seed=1,
            actors=0,
            hidden=(32,),
            total_steps=5_000,
            exploration_steps=2_000,
            gradient_steps=48,
        ),
        CORRIDOR,
    )


@pytest.mark.parametrize("actors", [0, 2])
def test_impala_learns_a_corridor(policy_session: None, actors: int) -> None:
    learns(
        aktis.rl.IMPALA(Corridor, seed=1, actors=actors, num_envs=8, learning_rate=5e-3, total_steps=16_000),
        CORRIDOR,
    )


def test_es_learns_a_corridor_through_a_tree(policy_session: None) -> None:
    one = aktis.rl.ES(
        Corridor,
        seed=1,
        actors=5,
        fan_in=2,
        pairs=10,
        hidden=(4,),
        sigma=0.3,
        learning_rate=0.2,
        total_steps=6_000,
    )
    learns(one, CORRIDOR)


def test_es_is_the_same_with_any_number_of_actors(policy_session: None) -> None:
    found = []
    for actors, fan_in in ((0, 2), (1, 2), (5, 2), (3, 8)):
        settings: dict[str, Any] = {
            "pairs": 6,
            "hidden": (4,),
            "target_return": None,
            "evaluation_interval": 0,
        }
        one = aktis.rl.ES("CartPole-v1", seed=2, actors=actors, fan_in=fan_in, total_steps=1_500, **settings)
        one.train()
        found.append(one.weights.detach().numpy().copy())
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-4)


def test_ppo_learns_continuous_actions_with_a_model_of_ones_own() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(2, 16)
            self.means = torch.nn.Linear(16, 1)
            self.values = torch.nn.Linear(16, 1)
            self.log_std = torch.nn.Parameter(torch.zeros(1))

        def forward(self, observations: Any) -> Any:
            assert observations.shape[1:] == (2, 1), "models see the shape of the space"
            hidden = torch.tanh(self.body(observations.flatten(1)))
            return self.means(hidden), self.values(hidden).squeeze(-1)

    learns(
        aktis.rl.PPO(
            Reach,
            model=lambda _: Model(),
            seed=1,
            actors=0,
            num_envs=8,
            rollout_steps=40,
            minibatch_size=64,
            gamma=0.0,
            learning_rate=1e-2,
            total_steps=10_000,
        ),
        REACH,
    )


def test_ppo_solves_cartpole_from_its_defaults() -> None:
    ppo = aktis.rl.PPO("CartPole-v1", seed=1)
    result = ppo.train()
    assert result.solved and result.mean_return >= 475
    # Gymnasium's own environment agrees.
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=7)
    total, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = environment.step(ppo.act(observation))
        total, done = total + float(reward), terminated or truncated
    assert total >= 400


def test_evaluations_decide_about_the_target() -> None:
    one = aktis.rl.PPO(
        "CartPole-v1",
        actors=0,
        target_return=1.0,
        evaluation_interval=300,
        evaluation_episodes=3,
        total_steps=5_000,
    )
    result = one.train()
    assert result.solved and result.evaluation_return is not None and result.evaluation_return >= 1.0
    assert 300 <= result.steps < 1_000


def test_actions_have_the_form_of_the_space() -> None:
    corridor = aktis.rl.PPO(Corridor, actors=0)
    assert corridor.act(3) in (5, 6)
    reach = aktis.rl.PPO(Reach, actors=0)
    action = reach.act(np.zeros((2, 1)))
    assert action.shape == (1,) and -2 <= action[0] <= 2
    with pytest.raises(aktis.rl.SpaceError, match=r"has shape \(2, 1\), got \(3,\)"):
        reach.act(np.zeros(3))


def test_a_callback_sees_each_iteration_and_ends_training() -> None:
    seen: list[int] = []

    def callback(one: aktis.rl.PPO) -> bool:
        seen.append(one.iteration)
        return one.iteration == 3

    result = aktis.rl.PPO("CartPole-v1", seed=1).train(callback=callback)
    assert seen == [1, 2, 3] and result.iterations == 3


def test_threads_of_torch_are_given_back() -> None:
    before = torch.get_num_threads()
    aktis.rl.PPO("CartPole-v1", total_steps=64, threads=before + 1).train()
    assert torch.get_num_threads() == before
