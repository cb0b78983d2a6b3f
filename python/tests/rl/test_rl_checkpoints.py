"""Checkpoints: a resumed run equals one that was never stopped; what is no checkpoint is refused by name."""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import Corridor

import aktis.rl
from aktis.rl import checkpoints

SMALL: dict[str, dict[str, Any]] = {
    "PPO": {"num_envs": 4, "rollout_steps": 16, "minibatch_size": 32, "epochs": 2, "actors": 0},
    "DQN": {"num_envs": 4, "rollout_steps": 16, "gradient_steps": 4, "learning_starts": 64, "actors": 0},
    "ES": {"pairs": 4, "hidden": (4,), "episodes_per_policy": 1, "actors": 0},
    "IMPALA": {"num_envs": 4, "rollout_steps": 16, "actors": 0},
}


def weights(algorithm: Any) -> Any:
    return torch.nn.utils.parameters_to_vector(algorithm.policy.module.parameters())


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("env", ["CartPole-v1", Corridor], ids=["built in", "own"])
def test_resumed_equals_uninterrupted(name: str, env: Any, tmp_path: Path) -> None:
    kind = getattr(aktis.rl, name)
    settings = {**SMALL[name], "seed": 5, "target_return": None, "evaluation_interval": 0}
    whole = kind(env, **settings, total_steps=1024)
    whole.train()

    half = kind(env, **settings, total_steps=512)
    half.train()
    half.save(tmp_path / "half")
    del half
    resumed = kind.load(tmp_path / "half", None if isinstance(env, str) else env, total_steps=1024)
    resumed.train()

    assert (resumed.steps, resumed.iteration, resumed.episodes) == (
        whole.steps,
        whole.iteration,
        whole.episodes,
    )
    assert list(resumed.recent) == list(whole.recent)
    assert torch.equal(weights(resumed), weights(whole))
    assert list(resumed.evaluate(5).returns) == list(whole.evaluate(5).returns)


@pytest.mark.parametrize("name", ["PPO", "DQN", "ES"])
def test_resumed_equals_uninterrupted_with_actors(shared_session: Any, name: str, tmp_path: Path) -> None:
    kind = getattr(aktis.rl, name)
    settings = {**SMALL[name], "seed": 5, "target_return": None, "evaluation_interval": 0, "actors": 2}
    whole = kind("CartPole-v1", **settings, total_steps=1024)
    whole.train()
    half = kind("CartPole-v1", **settings, total_steps=512)
    half.train()
    half.save(tmp_path / "half")
    resumed = kind.load(tmp_path / "half", total_steps=1024)
    resumed.train()
    assert list(resumed.recent) == list(whole.recent)
    assert torch.equal(weights(resumed), weights(whole))


def test_equal_seeds_give_equal_runs_and_others_differ() -> None:
    runs = []
    for seed in (1, 1, 2):
        one = aktis.rl.PPO("CartPole-v1", **SMALL["PPO"], seed=seed, total_steps=256)
        one.train()
        runs.append(weights(one))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_trees_come_back_as_they_were(tmp_path: Path) -> None:
    tree = {
        "numbers": [1, 2.5, None, True, 2**100],
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "tensor": torch.tensor(3.5),
        "bytes": b"\x00\xff",
        "by number": {0: {"step": 1}, 1: "x"},
        "scalar": np.float64(0.5),
    }
    checkpoints.save(tmp_path / "tree", tree)
    again = checkpoints.load(tmp_path / "tree")
    assert [again[key] for key in ("numbers", "bytes", "by number", "scalar")] == [
        [1, 2.5, None, True, 2**100],
        b"\x00\xff",
        {0: {"step": 1}, 1: "x"},
        0.5,
    ]
    np.testing.assert_array_equal(again["array"], tree["array"])
    assert again["array"].dtype == np.int16 and torch.equal(again["tensor"], torch.tensor(3.5))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    one = aktis.rl.PPO("CartPole-v1", **SMALL["PPO"], total_steps=64)
    one.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_every_truncation_is_noticed(saved: Path) -> None:
    content = saved.read_bytes()
    for length in (0, 1, 100, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(
            aktis.rl.CheckpointError, match=r"truncated, damaged or not a checkpoint(.|\n)*hint:"
        ):
            aktis.rl.load(saved)


def plain(tree: dict[str, Any]) -> tuple[str, list[bytes]]:
    """A tree as text and the contents of its arrays, to compare it."""
    arrays: list[Any] = []
    text = json.dumps(checkpoints._flatten(tree, arrays))
    return text, [array.tobytes() for array in arrays]


def test_damage_is_noticed_or_changes_nothing(saved: Path) -> None:
    whole = saved.read_bytes()
    wanted = plain(checkpoints.load(saved))
    noticed = 0
    for place in range(5, len(whole), len(whole) // 100):
        content = bytearray(whole)
        content[place] ^= 0xFF
        saved.write_bytes(content)
        try:
            # Nobody reads some bytes of a zip's headers, such as the time of an entry.
            assert plain(checkpoints.load(saved)) == wanted, place
        except aktis.rl.CheckpointError as error:
            assert "damaged" in str(error)
            noticed += 1
    assert noticed > 80


def rewrite(path: Path, change: Any) -> None:
    """Changes the JSON text of a checkpoint."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(entries["tree.json"])
    change(header)
    entries["tree.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def test_another_version_is_named(saved: Path) -> None:
    rewrite(saved, lambda header: header.update(version=99))
    with pytest.raises(aktis.rl.CheckpointError, match="has version 99 of the checkpoint format"):
        aktis.rl.load(saved)


def test_something_missing_is_named(saved: Path) -> None:
    rewrite(saved, lambda header: header["tree"]["state"].pop("optimizer"))
    with pytest.raises(
        aktis.rl.CheckpointError, match=r"lacks something that this version needs: .*optimizer"
    ):
        aktis.rl.load(saved)


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "owned",))

    content = io.BytesIO()
    np.save(content, np.array([Evil()], dtype=object), allow_pickle=True)
    tree = {"format": checkpoints.FORMAT, "version": checkpoints.VERSION, "tree": {"x": {"$array": 0}}}
    with zipfile.ZipFile(tmp_path / "evil", "w") as archive:
        archive.writestr("tree.json", json.dumps(tree))
        archive.writestr("0.npy", content.getvalue())
    (tmp_path / "pickle").write_bytes(pickle.dumps(Evil()))
    for name in ("evil", "pickle"):
        with pytest.raises(aktis.rl.CheckpointError):
            aktis.rl.load(tmp_path / name)
    assert not (tmp_path / "owned").exists()


def test_the_wrong_algorithm_environment_or_model_is_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(aktis.rl.CheckpointError, match="is a checkpoint of ppo, not of dqn"):
        aktis.rl.DQN.load(saved)
    with pytest.raises(aktis.rl.CheckpointError, match="does not fit the model"):
        aktis.rl.load(saved, hidden=(32,))
    with pytest.raises(aktis.rl.CheckpointError, match="there is no file"):
        aktis.rl.load(tmp_path / "nothing")
    with pytest.raises(aktis.rl.CheckpointError, match="is a directory"):
        aktis.rl.load(tmp_path)
    own = aktis.rl.PPO(Corridor, **SMALL["PPO"])
    own.save(tmp_path / "own")
    with pytest.raises(
        aktis.rl.CheckpointError, match="was trained on Corridor, which is not a registered id"
    ):
        aktis.rl.load(tmp_path / "own")
    assert aktis.rl.load(tmp_path / "own", Corridor).environment.name == "Corridor"


def test_a_failed_save_leaves_the_old_checkpoint(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(TypeError, match="a set cannot be saved"):
        checkpoints.save(saved, {"x": {1, 2}})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]
