"""Bad environments and models: the error names what is wrong, and the next run is unharmed."""

import signal
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from tiny import Corridor, Faulty, Hanging, Reach

import aktis
import aktis.rl

SMALL: dict[str, Any] = {"num_envs": 2, "rollout_steps": 16, "total_steps": 200}


@pytest.mark.parametrize("actors", [0, 1])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", r"Faulty raised ZeroDivisionError in step: no such cell \(environment 0.*, step 2"),
        ("nan", "Faulty returned an observation that is not finite"),
        ("nan reward", "Faulty returned a reward of nan"),
        ("shape", r"Faulty returned an observation of shape \(5,\); its space says \(1,\)"),
        (
            "endless",
            "Faulty: an episode has not ended after 50 steps\nhint: wrap it in gymnasium.wrappers.TimeLimit",
        ),
    ],
)
def test_a_faulty_environment_is_named(policy_session: None, fault: str, message: str, actors: int) -> None:
    one = aktis.rl.PPO(Faulty, env_kwargs={"fault": fault}, actors=actors, episode_steps_max=50, **SMALL)
    with pytest.raises(aktis.rl.EnvironmentFault, match=message):
        one.train()
    aktis.rl.PPO(Corridor, actors=actors, **SMALL).train()


ALGORITHMS: list[tuple[type[aktis.rl.Algorithm], dict[str, Any]]] = [
    (aktis.rl.PPO, SMALL),
    (aktis.rl.DQN, SMALL),
    (aktis.rl.IMPALA, SMALL),
    (aktis.rl.ES, {"pairs": 2, "total_steps": 200}),
]


#: These tests need the alarm of the process, which pytest-timeout takes by default.
uses_alarm = pytest.mark.timeout(method="thread")


@uses_alarm
@pytest.mark.parametrize(("algorithm", "settings"), ALGORITHMS)
@pytest.mark.parametrize("actors", [0, 2])
def test_an_environment_that_hangs_is_named_with_its_worker(
    policy_session: None, algorithm: Any, settings: dict[str, Any], actors: int
) -> None:
    one = algorithm(Hanging, env_kwargs={"verb": "step"}, actors=actors, step_deadline=0.2, **settings)
    of_worker = r" of worker \d" if actors else ""
    message = (
        rf"Hanging has not returned from step within step_deadline=0.2 s \(environment 0{of_worker}, step 0 "
        "of its episode\\)\nhint: see what it waits for, or raise step_deadline"
    )
    with pytest.raises(aktis.rl.EnvironmentFault, match=message):
        one.train()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@uses_alarm
@pytest.mark.parametrize(
    ("verb", "message"),
    [
        ("reset", "Hanging has not returned from reset within step_deadline=0.2 s"),
        ("constructor", "Hanging: the environment was not made within step_deadline=0.2 s\nhint: "),
    ],
)
def test_a_reset_and_a_constructor_have_the_deadline_too(verb: str, message: str) -> None:
    with pytest.raises(aktis.rl.EnvironmentFault, match=message):
        aktis.rl.PPO(Hanging, env_kwargs={"verb": verb}, actors=0, step_deadline=0.2, **SMALL).train()


def test_a_slow_program_between_steps_is_no_hang(policy_session: None) -> None:
    one = aktis.rl.PPO(Corridor, actors=1, step_deadline=0.1, **SMALL)
    one.train(callback=lambda _: time.sleep(0.3))
    assert one.steps >= SMALL["total_steps"]


@pytest.mark.parametrize(("algorithm", "settings"), ALGORITHMS)
@pytest.mark.parametrize("verb", ["killed", "native step"])
def test_a_worker_that_dies_is_named_with_its_environment(
    policy_session: None, algorithm: Any, settings: dict[str, Any], verb: str
) -> None:
    one = algorithm(Hanging, env_kwargs={"verb": verb}, actors=1, step_deadline=1.0, **settings)
    with pytest.raises(
        aktis.rl.EnvironmentFault, match=r"Hanging: worker 0, which runs it, died: (?s:.*)\nhint: "
    ):
        one.train()
    aktis.rl.PPO(Corridor, actors=1, **SMALL).train()


@pytest.mark.parametrize("actors", [0, 1])
def test_an_environment_without_memory_is_explained(policy_session: None, actors: int) -> None:
    one = aktis.rl.PPO(Hanging, env_kwargs={"verb": "memory"}, actors=actors, **SMALL)
    with pytest.raises(
        aktis.rl.EnvironmentFault,
        match=r"Hanging ran out of memory in step: .*\nhint: run fewer environments",
    ):
        one.train()


def test_evaluation_of_an_endless_environment_ends() -> None:
    one = aktis.rl.PPO(Faulty, env_kwargs={"fault": "endless"}, actors=0, episode_steps_max=50)
    with pytest.raises(aktis.rl.EnvironmentFault, match="not ended after 50 steps"):
        one.evaluate(1)


def test_spaces_that_no_algorithm_takes_are_named() -> None:
    with pytest.raises(
        aktis.rl.SpaceError, match=r"observations must be a Box or Discrete space, got Dict\(\)"
    ):
        aktis.rl.PPO(Faulty, env_kwargs={"fault": "dict"})
    with pytest.raises(
        aktis.rl.SpaceError, match="dqn needs discrete actions, and those of Reach are continuous"
    ):
        aktis.rl.DQN(Reach)

    class Many(Corridor):
        action_space = gymnasium.spaces.MultiBinary(3)  # type: ignore[assignment]

    with pytest.raises(aktis.rl.SpaceError, match="actions must be a Discrete or Box space, got MultiBinary"):
        aktis.rl.ES(Many)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPoll-v1", r"no environment 'CartPoll-v1'(.|\n)*built in are .*CartPole-v1"),
        ("CartPole-v99", "no environment 'CartPole-v99'"),
        (3, "must be an id, a class or a function, got 3"),
        (Corridor(), "must be an id, a class or a function(.|\n)*hint: give its class"),
        (dict, "dict made a dict, which is not a gymnasium.Env"),
        (lambda: 1 / 0, "cannot be made: ZeroDivisionError"),
    ],
)
def test_what_is_no_environment_is_named(env: Any, message: str) -> None:
    with pytest.raises(aktis.rl.EnvironmentFault, match=message):
        aktis.rl.PPO(env)


class Model(torch.nn.Module):
    """Returns what a function makes of a good answer."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.change = change
        self.calls = 0

    def forward(self, observations: Any) -> Any:
        self.calls += 1
        return self.change(self.linear(observations), torch.zeros(len(observations)), self.calls)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda logits, values, _: logits, r"must return a pair \(action outputs, values\), got a tensor"),
        (
            lambda logits, values, _: (logits[:, :1], values),
            r"must return 2 outputs per observation, shape \(3, 2\)",
        ),
        (
            lambda logits, values, _: (logits, values[:, None]),
            r"one value per observation, shape \(3,\)(.|\n)*squeeze",
        ),
        (
            lambda logits, values, _: 1 / 0,
            r"the model raised ZeroDivisionError for observations of shape \(3, 4\)",
        ),
        (
            lambda logits, values, _: (logits * np.nan, values),
            "the model returned nan instead of a finite number",
        ),
        (
            lambda logits, values, calls: (logits * (np.nan if calls > 5 else 1), values),
            "the model returned nan instead of a finite number",
        ),
        (
            lambda logits, values, calls: (logits, logits[:, 0] * (np.nan if calls > 20 else 1)),
            "ppo: the loss is nan in iteration 1 ",
        ),
    ],
)
def test_a_wrong_model_is_named(change: Any, message: str) -> None:
    with pytest.raises(aktis.rl.ModelError, match=message):
        aktis.rl.PPO("CartPole-v1", model=Model(change), actors=0, **SMALL).train()


def test_other_wrong_models_are_named() -> None:
    with pytest.raises(aktis.rl.ModelError, match=r"must be a torch\.nn\.Module, or a function"):
        aktis.rl.PPO("CartPole-v1", model=3)
    with pytest.raises(aktis.rl.ModelError, match=r"needs an attribute log_std of shape \(1,\), got None"):
        aktis.rl.PPO(
            "Pendulum-v1",
            model=lambda spaces: _PairOf(torch.nn.Linear(3, 1)),
        )


class _PairOf(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, observations: Any) -> Any:
        outputs = self.inner(observations)
        return outputs, outputs[:, 0]


def test_a_learning_rate_that_is_far_too_high_is_an_error_and_not_a_hang() -> None:
    one = aktis.rl.PPO("CartPole-v1", learning_rate=1e30, gradient_norm_max=1e30, total_steps=20_000)
    with pytest.raises((aktis.rl.ModelError, ValueError), match=r"nan|inf|finite"):
        one.train()
