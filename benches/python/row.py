"""A row: its figures, and for each peer the function that measures them.

A row runs in a process of its own for each peer and round. Remote functions are defined inside the measuring
functions, so that they travel by value and no worker has to import this folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clock import Clock
from figure import Shape

#: Given the peer's session (the module of Aktis or Ray, Dask's client, the pool), a value for each key.
Measure = Callable[[Any, Clock], Mapping[str, float]]


@dataclass(frozen=True)
class Row:
    """One line or a few of the table."""

    name: str
    figures: tuple[Shape, ...]
    measures: Mapping[str, Measure]
    options: Mapping[str, Any] = field(default_factory=dict)
    """For `init` of Aktis and Ray."""
    opens_session: bool = False
    """The functions get nothing, and start a session themselves."""
    timeout: float = 180
    """How many seconds one round of one peer may take, with start and end."""


def both(measure: Measure) -> dict[str, Measure]:
    """Aktis and Ray have the same API."""
    return {"aktis": measure, "ray": measure}
