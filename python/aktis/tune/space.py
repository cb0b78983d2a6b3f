"""Search spaces: what a configuration may be, and how one is drawn from it.

space = {
    "layers": grid_search([1, 2, 3]),
    "optimizer": {"name": choice(["sgd", "adam"]), "rate": loguniform(1e-4, 1e-1)},
    "batch": sample_from(lambda config: 32 * config["layers"]),
}
"""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Choice",
    "Domain",
    "Float",
    "Integer",
    "Normal",
    "SampleFrom",
    "choice",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]

GRID = "grid_search"
"""The key that marks a grid: `{"grid_search": [...]}`."""


class Domain:
    """What one parameter may be."""

    def sample(self, generator: random.Random | None = None) -> Any:
        """A value, drawn at random."""
        raise NotImplementedError

    def clip(self, value: Any) -> Any:
        """The value of the domain that is nearest to a number."""
        return value


@dataclass(frozen=True)
class Float(Domain):
    """A number between `lower` and `upper`; with `log` its logarithm is uniform; a multiple of `step`."""

    lower: float
    upper: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        check_bounds(self.lower, self.upper, self.log, self.step)

    def sample(self, generator: random.Random | None = None) -> float:
        draw = (generator or random).uniform
        if self.log:
            return self.clip(math.exp(draw(math.log(self.lower), math.log(self.upper))))
        return self.clip(draw(self.lower, self.upper))

    def clip(self, value: Any) -> float:
        number = float(value)
        if self.step is not None:
            number = round(number / self.step) * self.step
        return min(max(number, self.lower), self.upper)


@dataclass(frozen=True)
class Integer(Domain):
    """A whole number from `lower` up to, and without, `upper`; with `log` its logarithm is uniform."""

    lower: int
    upper: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        check_bounds(self.lower, self.upper, self.log, self.step)

    def sample(self, generator: random.Random | None = None) -> int:
        source = generator or random
        if self.log:
            value = math.exp(source.uniform(math.log(self.lower), math.log(self.upper)))
            return self.clip(math.floor(value))
        return self.clip(source.randrange(self.lower, self.upper))

    def clip(self, value: Any) -> int:
        number = round(value / self.step) * self.step
        return int(min(max(number, self.lower), self.upper - 1))


@dataclass(frozen=True)
class Normal(Domain):
    """A number that is normally distributed; a multiple of `step`."""

    mean: float = 0.0
    deviation: float = 1.0
    step: float | None = None

    def sample(self, generator: random.Random | None = None) -> float:
        value = (generator or random).gauss(self.mean, self.deviation)
        return value if self.step is None else round(value / self.step) * self.step


@dataclass(frozen=True)
class Choice(Domain):
    """One of some values."""

    categories: Sequence[Any]

    def sample(self, generator: random.Random | None = None) -> Any:
        return (generator or random).choice(self.categories)


@dataclass(frozen=True)
class SampleFrom(Domain):
    """What a function makes of the rest of the configuration."""

    function: Callable[[Any], Any]


def check_bounds(lower: Any, upper: Any, log: bool, step: Any) -> None:
    """Refuses bounds between which there is nothing."""
    for bound in (lower, upper):
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            raise TypeError(
                f"a bound must be a number, got {bound!r}\nhint: give two numbers, e.g. uniform(0, 1)"
            )
    if not lower < upper:
        raise ValueError(
            f"the lower bound must be below the upper one, got {lower} and {upper}"
            "\nhint: exchange or widen the bounds"
        )
    if log and not lower > 0:
        raise ValueError(
            f"the lower bound of a logarithmic domain must be positive, got {lower}"
            "\nhint: use a linear domain where 0 or less may come out"
        )
    if step is not None and not step > 0:
        raise ValueError(f"the step must be positive, got {step}\nhint: give the distance between two values")


def uniform(lower: float, upper: float) -> Float:
    """A number between two bounds."""
    return Float(lower, upper)


def quniform(lower: float, upper: float, q: float) -> Float:
    """A multiple of `q` between two bounds."""
    return Float(lower, upper, step=q)


def loguniform(lower: float, upper: float, base: float = 10) -> Float:
    """A number between two bounds whose logarithm is uniform. The base changes nothing."""
    return Float(lower, upper, log=True)


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Float:
    """A multiple of `q` between two bounds whose logarithm is about uniform."""
    return Float(lower, upper, log=True, step=q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """A number that is normally distributed."""
    _check_deviation(sd)
    return Normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """A multiple of `q` that is about normally distributed."""
    _check_deviation(sd)
    return Normal(mean, sd, q)


def randint(lower: int, upper: int) -> Integer:
    """A whole number from `lower` up to, and without, `upper`."""
    _check_integers(lower, upper)
    return Integer(lower, upper)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """A multiple of `q` from `lower` up to, and with, `upper`."""
    _check_integers(lower, upper)
    return Integer(lower, upper + 1, step=q)


def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """A whole number from `lower` up to, and without, `upper`, whose logarithm is about uniform."""
    _check_integers(lower, upper)
    return Integer(lower, upper, log=True)


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """A multiple of `q` from `lower` up to, and with, `upper`, whose logarithm is about uniform."""
    _check_integers(lower, upper)
    return Integer(lower, upper + 1, log=True, step=q)


def _listed(name: str, values: Any) -> list[Any]:
    if not isinstance(values, Iterable):
        raise TypeError(f"`{name}` takes a list of values, got {values!r}\nhint: tune.{name}([1, 2, 3])")
    return list(values)


def _check_integers(*bounds: Any) -> None:
    for bound in bounds:
        if isinstance(bound, bool) or not hasattr(bound, "__index__"):
            raise TypeError(
                f"a bound of whole numbers must be an integer, got {bound!r}\n"
                "hint: tune.uniform and tune.quniform take other numbers"
            )


def _check_deviation(sd: Any) -> None:
    if isinstance(sd, bool) or not isinstance(sd, int | float):
        raise TypeError(f"`sd` must be a number, got {sd!r}\nhint: the standard deviation, such as 1.0")
    if not sd > 0:
        raise ValueError(f"`sd` must be positive, got {sd}\nhint: the standard deviation, such as 1.0")


def choice(categories: Sequence[Any]) -> Choice:
    """One of some values."""
    values = _listed("choice", categories)
    if not values:
        raise ValueError("there is nothing to choose from\nhint: give at least one value")
    return Choice(values)


def sample_from(func: Callable[[Any], Any]) -> SampleFrom:
    """What `func` makes of the configuration: `sample_from(lambda config: config["layers"] * 32)`.

    `lambda spec: spec.config.layers * 32` means the same.
    """
    if not callable(func):
        raise TypeError(
            f"`sample_from` takes a function, got {func!r}"
            "\nhint: for example sample_from(lambda config: 2 * config.a)"
        )
    return SampleFrom(func)


def grid_search(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Each of some values: every combination of all grids is tried `num_samples` times."""
    found = _listed("grid_search", values)
    if not found:
        raise ValueError("a grid without values gives no trials\nhint: give at least one value")
    return {GRID: found}


class View(dict[str, Any]):
    """A configuration for functions of `sample_from`: `config["x"]`, `spec.config["x"]`, `spec.config.x`."""

    def __getattr__(self, name: str) -> Any:
        if name == "config":
            return self
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return View(value) if isinstance(value, dict) else value


Path = tuple[Any, ...]


def leaves(space: Mapping[Any, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All values of a nested dictionary with their paths. A grid is one value."""
    for key, value in space.items():
        if isinstance(value, Mapping) and set(value) != {GRID} and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def put(config: dict[Any, Any], path: Path, value: Any) -> None:
    """Sets a value in a nested dictionary."""
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value


def is_grid(value: Any) -> bool:
    """Whether the value stands for a grid."""
    return isinstance(value, Mapping) and set(value) == {GRID}


def variants(
    space: Mapping[Any, Any], num_samples: int, generator: random.Random
) -> Iterator[dict[Any, Any]]:
    """All configurations: `num_samples` times each combination of the grids, with the rest drawn anew."""
    found = list(leaves(space))
    grids = [(path, list(value[GRID])) for path, value in found if is_grid(value)]
    for _ in range(num_samples):
        for combination in itertools.product(*(values for _, values in grids)):
            chosen = {path: value for (path, _), value in zip(grids, combination)}
            config: dict[Any, Any] = {}
            later: list[tuple[Path, SampleFrom]] = []
            for path, value in found:
                if path in chosen:
                    put(config, path, chosen[path])
                elif isinstance(value, SampleFrom):
                    later.append((path, value))
                else:
                    put(config, path, value.sample(generator) if isinstance(value, Domain) else value)
            resolve(config, later)
            yield config


def resolve(config: dict[Any, Any], later: list[tuple[Path, SampleFrom]]) -> None:
    """Calls the functions of `sample_from`, in an order in which each finds what it reads."""
    while later:
        waiting: list[tuple[Path, SampleFrom]] = []
        reason: Exception | None = None
        for path, value in later:
            try:
                put(config, path, value.function(View(config)))
            except (KeyError, AttributeError) as error:
                waiting.append((path, value))
                reason = error
        if len(waiting) == len(later):
            names = ", ".join("/".join(map(str, path)) for path, _ in waiting)
            raise ValueError(
                f"the functions of `sample_from` for {names} read what is not there: {reason!r}"
                "\nhint: let them read only keys of the search space, without a circle"
            )
        later = waiting
