"""The algorithms by name, and `load` and `load_policy`, which find the one that wrote a checkpoint."""

import os
from typing import Any

from aktis.rl import checkpoints
from aktis.rl.algorithm import Algorithm
from aktis.rl.dqn import DQN
from aktis.rl.errors import CheckpointError, RLError
from aktis.rl.es import ES
from aktis.rl.impala import IMPALA
from aktis.rl.inference import TrainedPolicy, spaces_from_dict
from aktis.rl.models import make_policy
from aktis.rl.ppo import PPO

ALGORITHMS: dict[str, type[Algorithm]] = {one.name: one for one in (PPO, DQN, ES, IMPALA)}


def load(path: str | os.PathLike[str], env: Any = None, **arguments: Any) -> Algorithm:
    """The algorithm that wrote a checkpoint, as it was then; arguments are those of `Algorithm.load`."""
    return ALGORITHMS[_name(path, checkpoints.load(path))].load(path, env, **arguments)


def load_policy(path: str | os.PathLike[str], *, model: Any = None) -> TrainedPolicy:
    """The policy of a checkpoint alone: it needs no environment, and nothing is trained with it.

    Give `model` again if it was your own.
    """
    tree = checkpoints.load(path)
    kind = ALGORITHMS[_name(path, tree)]
    try:
        spaces = spaces_from_dict(tree["spaces"])
        config = kind.config_type.of(tree["config"])
        policy = make_policy(
            kind.name, model, spaces, lambda: kind.default_model(config, spaces), critic=kind.critic
        )
        policy.module.load_state_dict(tree["state"]["model"])
        return TrainedPolicy(tree["environment"]["name"], policy)
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} lacks something that this version needs: {error!r}"
            "\nhint: load it by aktis.rl.load, which asks the environment, and save it again"
        ) from error
    except RuntimeError as error:
        if isinstance(error, RLError):
            raise
        raise CheckpointError(
            f"{path} does not fit the model: {error}"
            "\nhint: give the model that was trained: load_policy(path, model=...)"
        ) from error


def _name(path: str | os.PathLike[str], tree: dict[str, Any]) -> str:
    """The algorithm that wrote a checkpoint."""
    name = tree.get("algorithm")
    if name not in ALGORITHMS:
        raise CheckpointError(
            f"{path} is a checkpoint of {name!r}, which this version does not have"
            f"\nhint: algorithms are {', '.join(ALGORITHMS)}"
        )
    return str(name)
