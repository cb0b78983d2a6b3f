"""Settings of the algorithms: dataclasses that check each field when they are made.

Each algorithm adds its own fields to those of `Config`. A field is made by `setting`, which carries the help
text and the range; the command line takes its options from there.
"""

import dataclasses
import difflib
import math
import operator
import types
import typing
from typing import Any, Self

from aktis.rl.errors import ConfigError

#: Words for the types of fields, in messages.
_TYPES = {
    int: "an integer",
    float: "a number",
    bool: "True or False",
    str: "a string",
    tuple[int, ...]: "a tuple of integers",
}

#: What other libraries call these settings, for hints.
ELSEWHERE = {
    "batch_size": ("minibatch_size",),
    "ent_coef": ("entropy_coefficient",),
    "entropy_coeff": ("entropy_coefficient",),
    "lambda_": ("gae_lambda",),
    "lr": ("learning_rate",),
    "max_grad_norm": ("gradient_norm_max",),
    "n_envs": ("num_envs",),
    "n_epochs": ("epochs",),
    "n_steps": ("rollout_steps",),
    "net_arch": ("hidden",),
    "num_workers": ("actors",),
    "target_update_interval": ("target_interval",),
    "total_timesteps": ("total_steps",),
    "vf_coef": ("value_coefficient",),
    "vf_loss_coeff": ("value_coefficient",),
}


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A field of a configuration; `low` and `high` are allowed, `above` itself is not."""
    metadata = {"help": help, "low": low, "high": high, "above": above, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings that all algorithms have."""

    seed: int = setting(0, "seed of everything random", low=0)
    total_steps: int = setting(1_000_000, "steps of environments after which training ends", low=1)
    target_return: float | None = setting(None, "mean return at which training ends; None: never")
    target_episodes: int = setting(100, "latest training episodes that the mean return is over", low=1)
    evaluation_interval: int = setting(
        0, "steps between evaluations, which then decide about target_return; 0: no evaluations", low=0
    )
    evaluation_episodes: int = setting(100, "episodes of one evaluation", low=1)
    anneal: bool = setting(
        False, "let the learning rate, and the clip range of PPO, fall to 0 over total_steps"
    )
    checkpoint_interval: int = setting(
        0, "steps between checkpoints in the directory; 0: at the end only", low=0
    )
    episode_steps_max: int = setting(
        100_000, "steps after which an episode that has not ended is an error", low=1
    )
    step_deadline: float = setting(
        300.0, "seconds that a step, a reset or the constructor of an environment may take", above=0
    )
    faults_max: int = setting(
        0, "faults of environments that training survives: it replaces what fails, and counts", low=0
    )
    threads: int = setting(1, "threads of torch; one is fastest for small networks", low=1)

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            metadata = type(self).__dataclass_fields__[name].metadata
            value = check(f"{type(self).__name__}.{name}", getattr(self, name), hint, metadata)
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        """A configuration from names and values; an unknown name is a ConfigError that suggests one."""
        allowed = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in allowed:
                near = [one for one in ELSEWHERE.get(name, ()) if one in allowed]
                near = near or difflib.get_close_matches(name, allowed, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"fields are {', '.join(allowed)}"
                raise ConfigError(f"{cls.__name__} has no field {name!r}\nhint: {hint}")
        return cls(**settings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


def _hints(cls: type) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(cls)}
    return {name: hint for name, hint in typing.get_type_hints(cls).items() if name in fields}


def options_of(hint: Any) -> tuple[Any, bool]:
    """The type of a field, and whether None is allowed beside it."""
    if isinstance(hint, types.UnionType):
        [inner] = [part for part in typing.get_args(hint) if part is not type(None)]
        return inner, True
    return hint, False


def check(name: str, value: Any, hint: Any, metadata: Any) -> Any:
    """The value in its field's type; ConfigError if it has another one, or is out of range."""
    wanted, optional = options_of(hint)
    if value is None and optional:
        return None
    try:
        value = _convert(value, wanted)
    except (TypeError, ValueError):
        raise _refused(name, value, wanted, optional, metadata) from None
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(_in_range(number, metadata) for number in numbers):
        raise _refused(name, value, wanted, optional, metadata)
    return value


def _refused(name: str, value: Any, wanted: Any, optional: bool, metadata: Any) -> ConfigError:
    hint = f"it is: {metadata['help']}" if metadata.get("help") else "see the fields of the config"
    return ConfigError(
        f"{name} must be {_described(wanted, optional, metadata)}, got {value!r}\nhint: {hint}"
    )


def _convert(value: Any, wanted: Any) -> Any:
    if wanted is bool:
        if not isinstance(value, bool):
            raise TypeError
        return value
    if wanted is str:
        if not isinstance(value, str):
            raise TypeError
        return value
    if wanted is int:
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 1e6 is how people write a million
        return operator.index(value)
    if wanted is float:
        if isinstance(value, bool | str):
            raise TypeError
        return float(value)
    if isinstance(value, str):
        raise TypeError
    return tuple(_convert(part, int) for part in value)


def _in_range(value: Any, metadata: Any) -> bool:
    if metadata["choices"] is not None:
        return value in metadata["choices"]
    if isinstance(value, bool | str):
        return True
    low, high, above = metadata["low"], metadata["high"], metadata["above"]
    return (
        not math.isnan(value)
        and (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
    )


def _described(wanted: Any, optional: bool, metadata: Any) -> str:
    low, high, above = metadata["low"], metadata["high"], metadata["above"]
    if metadata["choices"] is not None:
        words = "one of " + ", ".join(repr(choice) for choice in metadata["choices"])
    else:
        words = _TYPES[wanted]
        if low is not None and high is not None:
            words += f" from {low} to {high}"
        elif low is not None:
            words += f" of at least {low}"
        elif above is not None:
            words += f" above {above}" + (f" and at most {high}" if high is not None else "")
        elif high is not None:
            words += f" of at most {high}"
    return words + (" or None" if optional else "")
