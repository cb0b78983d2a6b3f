"""Reinforcement learning on Aktis: PPO, DQN, evolution strategies and IMPALA, in a few lines.

    import aktis.rl

    ppo = aktis.rl.PPO("CartPole-v1", seed=1)
    result = ppo.train()
    print(result.mean_return, ppo.evaluate(episodes=100).mean)

The environment is an id, a class or a function that makes one; the model is a module of PyTorch. Needs the
packages torch, gymnasium and numpy: `pip install 'aktis[rl]'`. The guide is docs/learning.md.

Names are loaded at their first use, so that processes which only step environments do not load torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aktis.rl.algorithm import Algorithm, Evaluation, TrainResult
    from aktis.rl.config import Config
    from aktis.rl.dqn import DQN, DQNConfig
    from aktis.rl.errors import (
        CheckpointError,
        ConfigError,
        EnvironmentFault,
        ModelError,
        RLError,
        SpaceError,
    )
    from aktis.rl.es import ES, ESConfig
    from aktis.rl.impala import IMPALA, IMPALAConfig
    from aktis.rl.inference import TrainedPolicy
    from aktis.rl.ppo import PPO, PPOConfig
    from aktis.rl.registry import load, load_policy

__all__ = [
    "DQN",
    "ES",
    "IMPALA",
    "PPO",
    "Algorithm",
    "CheckpointError",
    "Config",
    "ConfigError",
    "DQNConfig",
    "ESConfig",
    "EnvironmentFault",
    "Evaluation",
    "IMPALAConfig",
    "ModelError",
    "PPOConfig",
    "RLError",
    "SpaceError",
    "TrainResult",
    "TrainedPolicy",
    "load",
    "load_policy",
]

_HOMES = {
    **dict.fromkeys(("Algorithm", "Evaluation", "TrainResult"), "algorithm"),
    "Config": "config",
    **dict.fromkeys(("DQN", "DQNConfig"), "dqn"),
    **dict.fromkeys(
        ("CheckpointError", "ConfigError", "EnvironmentFault", "ModelError", "RLError", "SpaceError"),
        "errors",
    ),
    **dict.fromkeys(("ES", "ESConfig"), "es"),
    **dict.fromkeys(("IMPALA", "IMPALAConfig"), "impala"),
    **dict.fromkeys(("PPO", "PPOConfig"), "ppo"),
    "TrainedPolicy": "inference",
    **dict.fromkeys(("load", "load_policy"), "registry"),
}


def _require(*packages: str) -> None:
    """Raises ImportError with a hint unless the packages can be imported. Does not import them."""
    from importlib.util import find_spec

    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        names = " and ".join(missing)
        verb = "is" if len(missing) == 1 else "are"
        raise ImportError(
            f"aktis.rl needs {names}, which {verb} not installed\nhint: pip install 'aktis[rl]'"
        )


_require("numpy", "gymnasium", "torch")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"aktis.rl.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'aktis.rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
