"""With `faults_max`, what fails is replaced, counted and reported, and training goes on."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import Brittle, Corridor

import aktis
import aktis.rl

ALGORITHMS: list[tuple[Any, dict[str, Any]]] = [
    (aktis.rl.PPO, {"num_envs": 2, "rollout_steps": 20, "minibatch_size": 20, "epochs": 1}),
    (aktis.rl.DQN, {"num_envs": 2, "rollout_steps": 20, "learning_starts": 40, "gradient_steps": 2}),
    (aktis.rl.IMPALA, {"num_envs": 2}),
    (aktis.rl.ES, {"pairs": 2, "episodes_per_policy": 1, "hidden": (4,)}),
]

#: A hang needs the alarm of the process, which pytest-timeout takes by default.
uses_alarm = pytest.mark.timeout(method="thread")


def trained(kind: Any, settings: dict[str, Any], once: Path, trouble: str, actors: int, **more: Any) -> Any:
    """An algorithm that has trained with an environment that fails once."""
    arguments = {"trouble": trouble, "once": str(once)}
    options = {"total_steps": 200, "step_deadline": 0.5, "faults_max": 1, **settings, **more}
    one = kind(Brittle, env_kwargs=arguments, actors=actors, **options)
    result = one.train()
    assert result.faults == 1 and result.steps >= 200, result
    return one


@uses_alarm
@pytest.mark.parametrize(("kind", "settings"), ALGORITHMS, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ("raises", "Brittle raised OSError in step: the licence has expired"),
        ("hangs", "Brittle has not returned from step within step_deadline=0.5 s"),
        ("nan", "Brittle returned the observation nan, which is not in Discrete(7)"),
    ],
)
def test_a_failing_environment_is_replaced_and_counted(
    tmp_path: Path, kind: Any, settings: dict[str, Any], trouble: str, text: str
) -> None:
    one = trained(kind, settings, tmp_path / "once", trouble, actors=0)
    assert len(one.latest_faults) == 1 and text in one.latest_faults[0]


@pytest.mark.parametrize(("kind", "settings"), ALGORITHMS, ids=lambda value: getattr(value, "name", ""))
def test_a_worker_that_dies_is_replaced_and_counted(
    policy_session: None, tmp_path: Path, kind: Any, settings: dict[str, Any]
) -> None:
    one = trained(kind, settings, tmp_path / "once", "dies", actors=2)
    assert "which runs it, died" in one.latest_faults[0]


def test_a_worker_of_built_in_environments_is_replaced(policy_session: None) -> None:
    one = aktis.rl.PPO("CartPole-v1", actors=2, faults_max=1, **{**ALGORITHMS[0][1], "total_steps": 200})
    result = one.train(callback=lambda one: one.iteration == 1 and aktis.kill(one._sampler.actors[1]))
    assert result.faults == 1 and result.steps >= 200
    assert "worker 1, which runs it, died" in one.latest_faults[0]


@pytest.mark.parametrize("of", ["evaluators", "aggregators"])
def test_the_tree_of_es_is_made_again(policy_session: None, of: str) -> None:
    settings: dict[str, Any] = {"pairs": 4, "hidden": (4,), "total_steps": 300, "seed": 1}
    settings |= {"target_return": None, "evaluation_interval": 0}

    class Pruned(aktis.rl.ES):
        def _sum(self, seed: int, preference: Any) -> Any:
            if self.iteration == 1 and not self.faults:
                aktis.kill(self.evaluators[0] if of == "evaluators" else self.aggregators[0][0])
            return super()._sum(seed, preference)

    one = Pruned("CartPole-v1", actors=2, faults_max=1, **settings)
    assert one.train().faults == 1
    whole = aktis.rl.ES("CartPole-v1", actors=2, **settings)
    whole.train()
    np.testing.assert_array_equal(one.weights.detach().numpy(), whole.weights.detach().numpy())
    with pytest.raises(aktis.rl.EnvironmentFault, match=r"an actor of the tree died(.|\n)*\nhint: "):
        Pruned("CartPole-v1", actors=2, **settings).train()


def test_faults_are_in_the_table_and_survive_a_resume(tmp_path: Path) -> None:
    kind, settings = ALGORITHMS[0]
    trained(kind, settings, tmp_path / "once", "raises", actors=0, directory=tmp_path)
    with open(tmp_path / "progress.csv", newline="") as file:
        assert [row["faults"] for row in csv.DictReader(file)][-1] == "1"
    resumed = aktis.rl.load(tmp_path / "checkpoint.aktis", Corridor, env_kwargs={})
    assert resumed.faults == 1


def test_one_fault_too_many_ends_training_and_saves_what_was_learnt(tmp_path: Path) -> None:
    arguments = {"trouble": "raises", "at": 30}
    settings = {**ALGORITHMS[0][1], "faults_max": 2, "actors": 0}
    one = aktis.rl.PPO(Brittle, env_kwargs=arguments, directory=tmp_path, **settings)
    with pytest.raises(aktis.rl.EnvironmentFault, match="the licence has expired") as caught:
        one.train()
    assert one.faults <= 3 and one.iteration > 0
    assert f"saved up to step {one.steps}" in caught.value.__notes__[0]
    again = aktis.rl.load(tmp_path / "checkpoint.aktis", Corridor, env_kwargs={}, total_steps=one.steps + 40)
    assert again.iteration == one.iteration and again.train().steps == one.steps + 40


def test_the_row_of_a_fault_is_not_learnt_from(tmp_path: Path) -> None:
    from aktis.rl.dqn import ReplayBuffer
    from aktis.rl.samplers import valid_rows

    settings = {**ALGORITHMS[0][1], "faults_max": 1, "actors": 0, "total_steps": 40}
    one = aktis.rl.PPO(Brittle, env_kwargs={"trouble": "raises", "once": str(tmp_path / "o")}, **settings)
    sampler = one._open_sampler(2, 0)
    batch = sampler.collect(20, sampler.weights_of(one.policy), with_next=True)
    sampler.close()
    [[step, environment]] = np.argwhere(~batch["valid"])
    assert batch["truncations"][step, environment] and batch["rewards"][step, environment] == 0
    assert len(batch["faults"]) == 1
    kept = valid_rows(batch)
    assert len(kept) == 39 and 2 * step + environment not in kept
    buffer = ReplayBuffer(100, 7)
    rows = ("observations", "actions", "rewards", "next_observations", "terminations")
    buffer.add(*(batch[name] for name in rows), kept)
    assert buffer.size == 39
