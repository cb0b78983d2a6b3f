"""The door to the environments of the native module, and what they are called."""

import secrets

from aktis._native import Rollouts as NativeRollouts
from aktis._native import SimulatedBatch as NativeBatch
from aktis._native import builtin_environments
from aktis._native import evaluate_population as native_evaluate_population

__all__ = [
    "NativeBatch",
    "NativeRollouts",
    "builtin_ids",
    "checked_seed",
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


def checked_seed(seed: int | None) -> int:
    """The seed, or a random one."""
    if seed is None:
        return secrets.randbits(48)
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    number = int(seed)
    if not 0 <= number < 2**63:
        raise ValueError(f"seed must be from 0 to 2**63 - 1, got {number}")
    return number
