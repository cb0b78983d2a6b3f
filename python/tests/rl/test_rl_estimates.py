"""Estimates of the learners against plain loops that follow the definitions."""

from typing import Any

import numpy as np
import pytest
import torch

from aktis.rl.dqn import ReplayBuffer
from aktis.rl.environments import Spaces
from aktis.rl.es import centred_ranks
from aktis.rl.impala import vtrace
from aktis.rl.models import ActorCritic, Policy
from aktis.rl.optimizer import Adam
from aktis.rl.population import noise_of
from aktis.rl.ppo import gae


def fragments(seed: int) -> dict[str, Any]:
    """Random steps of four environments, in which episodes terminate and are truncated."""
    random = np.random.default_rng(seed)
    shape = (12, 4)
    values, following = random.normal(size=(2, *shape)).astype(np.float32)
    terminations = random.random(shape) < 0.15
    ends = terminations | (random.random(shape) < 0.15)
    for step in range(shape[0] - 1):
        # Within an episode, the successor of a step is what the next step starts from.
        following[step] = np.where(ends[step], following[step], values[step + 1])
    following[terminations] = 0
    rewards = random.normal(size=shape).astype(np.float32)
    ratios = np.exp(random.normal(size=shape)).astype(np.float32)
    return {"rewards": rewards, "values": values, "next": following, "ends": ends, "ratios": ratios}


@pytest.mark.parametrize("seed", range(5))
def test_gae_is_the_sum_of_discounted_errors(seed: int) -> None:
    data = fragments(seed)
    gamma, decay = 0.9, 0.7
    advantages, targets = gae(data["rewards"], data["values"], data["next"], data["ends"], gamma, decay)
    steps, count = data["rewards"].shape
    for one in range(count):
        for start in range(steps):
            total, weight = 0.0, 1.0
            for step in range(start, steps):
                error = (
                    data["rewards"][step, one] + gamma * data["next"][step, one] - data["values"][step, one]
                )
                total += weight * error
                if data["ends"][step, one]:
                    break
                weight *= gamma * decay
            assert advantages[start, one] == pytest.approx(total, abs=1e-4)
            assert targets[start, one] == pytest.approx(total + data["values"][start, one], abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_vtrace_is_the_sum_of_its_paper(seed: int) -> None:
    """v_s = V(x_s) + sum over t of gamma^(t-s) (product of c_i) rho_t delta_t (the paper's equation 1)."""
    data = fragments(seed)
    gamma, rho_max, c_max = 0.9, 1.1, 0.8
    targets, advantages = vtrace(
        data["rewards"], data["values"], data["next"], data["ends"], data["ratios"], gamma, rho_max, c_max
    )
    steps, count = data["rewards"].shape
    for one in range(count):
        for start in range(steps):
            total, weight = float(data["values"][start, one]), 1.0
            for step in range(start, steps):
                error = (
                    data["rewards"][step, one] + gamma * data["next"][step, one] - data["values"][step, one]
                )
                total += weight * min(rho_max, data["ratios"][step, one]) * error
                if data["ends"][step, one]:
                    break
                weight *= gamma * min(c_max, data["ratios"][step, one])
            assert targets[start, one] == pytest.approx(total, abs=1e-4)
            last = data["ends"][start, one] or start == steps - 1
            after = data["next"][start, one] if last else targets[start + 1, one]
            gain = data["rewards"][start, one] + gamma * after - data["values"][start, one]
            assert advantages[start, one] == pytest.approx(
                min(rho_max, data["ratios"][start, one]) * gain, abs=1e-4
            )


def test_vtrace_on_policy_is_gae_with_lambda_one() -> None:
    data = fragments(9)
    ones = np.ones_like(data["rewards"])
    targets, _ = vtrace(data["rewards"], data["values"], data["next"], data["ends"], ones, 0.95)
    _, wanted = gae(data["rewards"], data["values"], data["next"], data["ends"], 0.95, 1.0)
    np.testing.assert_allclose(targets, wanted, atol=1e-5)


def test_ranks_are_centred_and_shared_by_equals() -> None:
    ranks = centred_ranks(np.array([[3.0, -1.0], [7.0, 3.0], [0.0, 3.0]]))
    np.testing.assert_allclose(ranks, [[0.1, -0.5], [0.5, 0.1], [-0.3, 0.1]])
    assert centred_ranks(np.full((4, 2), 5.0)).any() == False  # noqa: E712
    assert centred_ranks(np.array([[1.0]])) == 0


@pytest.mark.parametrize("norm_max", [0.05, float("inf")])
def test_optimizer_does_what_that_of_torch_does(norm_max: float) -> None:
    torch.manual_seed(3)
    mine, theirs = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    theirs.load_state_dict(mine.state_dict())
    adam = Adam(list(mine.parameters()), epsilon=1e-5, norm_max=norm_max)
    peer = torch.optim.Adam(theirs.parameters(), lr=0.02, eps=1e-5)
    for _ in range(20):
        inputs = torch.randn(8, 5)
        adam.minimize((mine(inputs) ** 2).mean(), 0.02)
        peer.zero_grad()
        (theirs(inputs) ** 2).mean().backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), norm_max)
        peer.step()
    torch.testing.assert_close(mine.weight, theirs.weight, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(mine.bias, theirs.bias, rtol=1e-4, atol=1e-6)


def test_noise_depends_on_seed_and_pair_only() -> None:
    np.testing.assert_array_equal(noise_of(1, 2, 50), noise_of(1, 2, 50))
    assert abs(np.corrcoef(noise_of(1, 2, 5000), noise_of(1, 3, 5000))[0, 1]) < 0.1


def test_replay_buffer_keeps_the_latest_transitions() -> None:
    buffer = ReplayBuffer(10, 1)
    for start in range(0, 24, 4):
        numbers = np.arange(start, start + 4).reshape(2, 2)
        buffer.add(numbers[..., None], numbers, numbers, numbers[..., None] + 1, numbers % 2 == 0)
    observations, actions, rewards, successors, discounts = buffer.columns
    assert sorted(actions) == list(range(14, 24))
    np.testing.assert_array_equal(observations[:, 0], actions)
    np.testing.assert_array_equal(successors[:, 0], actions + 1)
    np.testing.assert_array_equal(rewards, actions)
    np.testing.assert_array_equal(discounts, actions % 2)
    again = ReplayBuffer(10, 1)
    again.set_state(buffer.state())
    assert (again.size, again.position) == (buffer.size, buffer.position)
    np.testing.assert_array_equal(again.columns[1], buffer.columns[1])


@pytest.mark.parametrize("discrete", [True, False])
def test_log_probabilities_and_entropy_are_those_of_torch(discrete: bool) -> None:
    low = None if discrete else -np.ones(3)
    spaces = Spaces((4,), None, 0, False, 3 if discrete else None, 0, () if discrete else (3,), low, low)
    policy = Policy("test", ActorCritic(spaces, (8,), "tanh", 0.7), spaces, critic=True)
    outputs, _ = policy.outputs(torch.randn(20, 4))
    if discrete:
        peer = torch.distributions.Categorical(logits=outputs)
        actions = peer.sample()
        wanted = peer.log_prob(actions), peer.entropy()
    else:
        normal = torch.distributions.Normal(outputs, policy.module.log_std.exp())
        actions = normal.sample()
        wanted = normal.log_prob(actions).sum(-1), normal.entropy().sum(-1)
    for mine, theirs in zip(policy.evaluate(outputs, actions), wanted):
        torch.testing.assert_close(mine, theirs)
