"""Bad input to each of the four algorithms: a clear error that names it, and the next run is unharmed."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from tiny import Corridor, Faulty, Hanging

import aktis.rl

SMALL: dict[str, Any] = {"num_envs": 2, "rollout_steps": 16, "total_steps": 64}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "PPO": SMALL,
    "DQN": {**SMALL, "learning_starts": 16, "gradient_steps": 2},
    "IMPALA": SMALL,
    "ES": {"pairs": 2, "episodes_per_policy": 1, "hidden": (4,), "total_steps": 64},
}

each_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def make(name: str, env: Any, **more: Any) -> Any:
    return getattr(aktis.rl, name)(env, **{**ALGORITHMS[name], "seed": 1, **more})


class Spaced(Corridor):
    """Has the spaces that it is given."""

    def __init__(self, **spaces: Any) -> None:
        super().__init__()
        self.observation_space = spaces.get("observations", Discrete(7))
        self.action_space = spaces.get("actions", Discrete(2))


@each_algorithm
@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        ({"observations": Dict()}, r"Spaced: observations must be a Box or Discrete space, got Dict\(\)"),
        ({"observations": None}, "observations must be a Box or Discrete space, got None"),
        ({"observations": Box(0, 1, (0,))}, "the space of observations holds no number"),
        ({"actions": MultiBinary(3)}, "actions must be a Discrete or Box space, got MultiBinary"),
        ({"actions": Box(0, 9, (2,), np.int64)}, "a Box of actions must hold floating-point numbers"),
        ({"actions": Box(0, 1, (2, 0))}, "the space of actions holds no number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_spaces_are_named(name: str, spaces: dict[str, Any], message: str) -> None:
    with pytest.raises(aktis.rl.SpaceError, match=rf"{message}(.|\n)*\nhint: "):
        make(name, Spaced, env_kwargs=spaces)


class Contrary(Corridor):
    """Gives back something else than its spaces say, or than Gymnasium's interface asks for."""

    def __init__(self, verb: str, value: Any) -> None:
        super().__init__()
        self.verb, self.value = verb, value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        returned = super().reset(seed=seed)
        return self.value if self.verb == "reset" else returned

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if self.verb == "step":
            return self.value
        return (
            self.value if self.verb == "observation" else observation,
            self.value if self.verb == "reward" else reward,
            *rest,
        )


@each_algorithm
@pytest.mark.parametrize(
    ("verb", "value", "message"),
    [
        ("observation", {"cell": 3}, "returned the observation {'cell': 3}, which is not in Discrete"),
        ("observation", 7, "returned the observation 7, which is not in Discrete"),
        ("reward", "much", "returned the reward 'much', which is not a number"),
        ("reward", None, "returned the reward None, which is not a number"),
        ("step", (3, 0.0, True, {}), r"returned \(3, 0.0, True, {}\) from step"),
        ("reset", 3, "returned 3 from reset"),
    ],
)
def test_environments_that_contradict_themselves_are_named(
    name: str, verb: str, value: Any, message: str
) -> None:
    one = make(name, Contrary, env_kwargs={"verb": verb, "value": value}, actors=0)
    with pytest.raises(aktis.rl.EnvironmentFault, match=rf"Contrary {message}(.|\n)*environment 0.*\nhint: "):
        one.train()


class Diverging(torch.nn.Module):
    """A model of one's own, which returns NaN from some call on."""

    def __init__(self, critic: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(7, 2)
        self.critic = critic
        self.calls = 0

    def forward(self, observations: Any) -> Any:
        self.calls += 1
        outputs = self.linear(observations) * (torch.nan if self.calls > 4 else 1)
        return (outputs, observations[:, 0]) if self.critic else outputs


@each_algorithm
@pytest.mark.parametrize("actors", [0, 1])
def test_a_model_that_returns_nan_is_named(policy_session: None, name: str, actors: int) -> None:
    one = make(name, Corridor, model=Diverging(name in ("PPO", "IMPALA")), actors=actors)
    with pytest.raises(
        aktis.rl.ModelError, match=r"the model returned nan instead of a finite number\nhint: "
    ):
        one.train()
    make(name, Corridor, actors=actors).train()


@each_algorithm
@pytest.mark.parametrize("actors", [0, 1])
def test_a_policy_without_python_that_has_diverged_is_named(
    policy_session: None, name: str, actors: int
) -> None:
    one = make(name, "CartPole-v1", actors=actors)
    with torch.no_grad():
        for parameter in one.policy.module.parameters():
            parameter.fill_(torch.nan)
        if name == "ES":
            one.weights.fill_(torch.nan)
    match = (
        r"the policy for CartPole-v1 has diverged: .*(NaN|nan|finite)(.|\n)*\nhint: lower the learning rate"
    )
    with pytest.raises(aktis.rl.ModelError, match=match):
        one.train()
    with pytest.raises(aktis.rl.ModelError, match=match):
        one.evaluate(1)
    make(name, "CartPole-v1", actors=actors).train()


@pytest.mark.parametrize("name", ["PPO", "IMPALA"])
def test_a_deviation_that_is_nan_is_not_blamed_on_the_environment(name: str) -> None:
    from tiny import Reach

    one = make(name, Reach, actors=0)
    with torch.no_grad():
        one.policy.module.log_std.fill_(torch.nan)
    with pytest.raises(aktis.rl.ModelError, match="the model returned nan"):
        one.train()


@each_algorithm
@pytest.mark.parametrize("actors", [0, 1])
def test_an_environment_that_never_ends_an_episode_is_named(
    policy_session: None, name: str, actors: int
) -> None:
    one = make(name, Faulty, env_kwargs={"fault": "endless"}, actors=actors, episode_steps_max=10)
    with pytest.raises(
        aktis.rl.EnvironmentFault,
        match=r"Faulty: an episode has not ended after 10 steps\nhint: wrap it in gymnasium.wrappers",
    ):
        one.train()


@each_algorithm
@pytest.mark.parametrize("actors", [0, 1])
def test_a_worker_without_memory_is_named(policy_session: None, name: str, actors: int) -> None:
    one = make(name, Hanging, env_kwargs={"verb": "memory"}, actors=actors)
    of_worker = " of worker 0" if actors else ""
    match = rf"Hanging ran out of memory in step: .* \(environment 0{of_worker}, step 0 .*\nhint: run fewer"
    with pytest.raises(aktis.rl.EnvironmentFault, match=match):
        one.train()
    make(name, Corridor, actors=actors).train()


def test_a_replay_buffer_without_memory_is_named() -> None:
    with pytest.raises(aktis.rl.ConfigError, match=r"no memory for DQNConfig.buffer_size=1000000000000000 "):
        aktis.rl.DQN("CartPole-v1", buffer_size=10**15)


# --- checkpoints ----------------------------------------------------------------------------------------


def rewritten(path: Path, change: Any) -> None:
    """Changes the JSON text of a checkpoint, and makes its checksums right again."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(entries["tree.json"])
    change(header)
    entries["tree.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


@pytest.fixture
def saved(name: str, tmp_path: Path) -> Path:
    """A checkpoint of an algorithm that has trained."""
    one = make(name, "CartPole-v1", actors=0)
    one.train()
    one.save(tmp_path / "saved")
    return tmp_path / "saved"


@each_algorithm
def test_a_checkpoint_that_is_truncated_or_of_another_version_is_named(name: str, saved: Path) -> None:
    content = saved.read_bytes()
    for length in (0, 50, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(
            aktis.rl.CheckpointError, match=r"saved is truncated, damaged or not a checkpoint"
        ):
            aktis.rl.load(saved)
    saved.write_bytes(content)
    rewritten(saved, lambda header: header.update(version=2))
    with pytest.raises(aktis.rl.CheckpointError, match=r"has version 2 .* reads version 1\nhint: "):
        aktis.rl.load(saved)


@each_algorithm
def test_a_checkpoint_that_lacks_a_part_or_does_not_fit_is_named(name: str, saved: Path) -> None:
    content = saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        tree = json.loads(archive.read("tree.json"))["tree"]
    for part in tree["state"]:
        rewritten(saved, lambda header, part=part: header["tree"]["state"].pop(part))
        with pytest.raises(aktis.rl.CheckpointError, match=rf"lacks something .*{part}(.|\n)*\nhint: "):
            aktis.rl.load(saved)
        saved.write_bytes(content)
    for part in ("algorithm", "config", "counters", "environment", "sampler", "state"):
        rewritten(saved, lambda header, part=part: header["tree"].pop(part))
        with pytest.raises(aktis.rl.CheckpointError, match=r"\nhint: "):
            aktis.rl.load(saved)
        saved.write_bytes(content)
    with pytest.raises(aktis.rl.CheckpointError, match=r"does not fit the model(.|\n)*\nhint: "):
        aktis.rl.load(saved, hidden=(5, 5, 5))
    assert aktis.rl.load(saved).steps >= 64


@each_algorithm
def test_a_run_goes_on_with_other_environments_and_actors(
    policy_session: None, name: str, saved: Path
) -> None:
    before = aktis.rl.load(saved).steps
    more: dict[str, Any] = {"actors": 2, "total_steps": before + 64}
    if name != "ES":
        more["num_envs"] = 4
    one = aktis.rl.load(saved, **more)
    assert one.train().steps >= before + 64
