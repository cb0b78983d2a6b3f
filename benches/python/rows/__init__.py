"""All rows, in the order of the table."""

from row import Row
from rows import (
    actors,
    arguments,
    large_objects,
    many_actors,
    placement,
    references,
    sessions,
    small_objects,
    tasks,
)

ROWS: list[Row] = [
    *tasks.ROWS,
    *actors.ROWS,
    *small_objects.ROWS,
    *large_objects.ROWS,
    *references.ROWS,
    *placement.ROWS,
    *sessions.ROWS,
    *many_actors.ROWS,
    *arguments.ROWS,
]
