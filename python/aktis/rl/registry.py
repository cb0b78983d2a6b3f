"""The algorithms by name, and `load`, which finds the one that wrote a checkpoint."""

import os
from typing import Any

from aktis.rl import checkpoints
from aktis.rl.algorithm import Algorithm
from aktis.rl.dqn import DQN
from aktis.rl.errors import CheckpointError
from aktis.rl.es import ES
from aktis.rl.impala import IMPALA
from aktis.rl.ppo import PPO

ALGORITHMS: dict[str, type[Algorithm]] = {one.name: one for one in (PPO, DQN, ES, IMPALA)}


def load(path: str | os.PathLike[str], env: Any = None, **arguments: Any) -> Algorithm:
    """The algorithm that wrote a checkpoint, as it was then; arguments are those of `Algorithm.load`."""
    name = checkpoints.load(path).get("algorithm")
    if name not in ALGORITHMS:
        raise CheckpointError(
            f"{path} is a checkpoint of {name!r}, which this version does not have"
            f"\nhint: algorithms are {', '.join(ALGORITHMS)}"
        )
    return ALGORITHMS[name].load(path, env, **arguments)
