"""The door to the environments of the native module, and what they are called."""

from aktis._native import Rollouts as NativeRollouts
from aktis._native import SimulatedBatch as NativeBatch
from aktis._native import builtin_environments
from aktis._native import evaluate_population as native_evaluate_population

__all__ = [
    "NativeBatch",
    "NativeRollouts",
    "builtin_ids",
    "is_builtin",
    "native_evaluate_population",
]

_IDS = frozenset(builtin_environments())


def builtin_ids() -> list[str]:
    """The ids of the built-in environments, sorted.

    >>> "CartPole-v1" in builtin_ids()
    True
    """
    return sorted(_IDS)


def is_builtin(env_id: object) -> bool:
    """Whether there is a built-in environment of this id."""
    return isinstance(env_id, str) and env_id in _IDS
