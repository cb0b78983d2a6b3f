"""Settings: what is wrong with one is said with its name, what was given and what is allowed."""

import numpy as np
import pytest

from aktis.rl import PPO, ConfigError, DQNConfig, ESConfig, PPOConfig


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("learning_rate", -1, r"PPOConfig.learning_rate must be a number above 0, got -1"),
        ("learning_rate", "fast", r"PPOConfig.learning_rate must be a number above 0, got 'fast'"),
        ("learning_rate", float("nan"), r"PPOConfig.learning_rate must be a number above 0, got nan"),
        ("gamma", 1.5, r"PPOConfig.gamma must be a number from 0 to 1, got 1.5"),
        ("num_envs", 0, r"PPOConfig.num_envs must be an integer of at least 1, got 0"),
        ("num_envs", 2.5, r"PPOConfig.num_envs must be an integer of at least 1, got 2.5"),
        ("num_envs", True, r"PPOConfig.num_envs must be an integer of at least 1, got True"),
        ("actors", -1, r"PPOConfig.actors must be an integer of at least 0 or None, got -1"),
        ("hidden", (64, 0), r"PPOConfig.hidden must be a tuple of integers of at least 1, got \(64, 0\)"),
        ("hidden", 64, r"PPOConfig.hidden must be a tuple of integers"),
        ("activation", "sigmoid", r"PPOConfig.activation must be one of 'tanh', 'relu', got 'sigmoid'"),
        ("anneal", 1, r"PPOConfig.anneal must be True or False, got 1"),
        ("seed", None, r"PPOConfig.seed must be an integer of at least 0, got None"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PPOConfig(**{name: value})


def test_an_unknown_setting_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="no field 'learning_rat'\nhint: did you mean 'learning_rate'"):
        PPO("CartPole-v1", learning_rat=1)


@pytest.mark.parametrize(("name", "meant"), [("lr", "learning_rate"), ("n_steps", "rollout_steps")])
def test_the_name_of_another_library_gets_a_suggestion(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"no field '{name}'\nhint: did you mean '{meant}'"):
        PPO("CartPole-v1", **{name: 1})


def test_values_take_the_type_of_their_field() -> None:
    config = PPOConfig(total_steps=1e6, hidden=[np.int64(8)], gamma=1, target_return=3)
    assert config == PPOConfig(total_steps=1_000_000, hidden=(8,), gamma=1.0, target_return=3.0)
    assert isinstance(config.total_steps, int) and isinstance(config.gamma, float)
    assert PPOConfig.of(config.as_dict()) == config


def test_settings_override_those_that_suit_the_environment() -> None:
    tuned = PPO("CartPole-v1", seed=3)
    assert (tuned.config.seed, tuned.config.target_return) == (3, 475.0)
    assert PPO("CartPole-v1", target_return=None).config.target_return is None
    assert PPO("CartPole-v1", PPOConfig()).config == PPOConfig()
    assert PPO("CartPole-v1", PPOConfig(epochs=2), seed=4).config == PPOConfig(epochs=2, seed=4)


def test_the_configuration_of_another_algorithm_is_refused() -> None:
    with pytest.raises(ConfigError, match="config must be a PPOConfig, got ESConfig"):
        PPO("CartPole-v1", ESConfig())


def test_a_replay_buffer_holds_an_iteration() -> None:
    with pytest.raises(ConfigError, match="buffer_size must hold the 256 transitions"):
        DQNConfig(buffer_size=255)
