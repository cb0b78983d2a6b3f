"""Checks of arguments that several functions take."""

import secrets
from typing import Any


def checked_count(name: str, value: Any) -> int:
    """`value` as an integer of at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}\nhint: give a whole number, e.g. 4")
    number = int(value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}\nhint: give 1 or more")
    return number


def checked_builtin(env_id: Any) -> str:
    """`env_id` as a string; whether there is such an environment, the native module says."""
    if not isinstance(env_id, str):
        raise TypeError(
            f"env_id must be the id of a built-in environment, got {env_id!r}\n"
            "hint: builtin_ids() lists them; Simulator takes any environment"
        )
    return env_id


def checked_seed(seed: int | None) -> int:
    """The seed, or a random one."""
    if seed is None:
        return secrets.randbits(48)
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(
            f"seed must be an integer or None, got {seed!r}"
            "\nhint: give a whole number, or None for a random one"
        )
    number = int(seed)
    if not 0 <= number < 2**63:
        raise ValueError(
            f"seed must be from 0 to 2**63 - 1, got {number}"
            "\nhint: give a whole number from 0, or None for a random one"
        )
    return number
