"""Picking rows: filters and limits, and how wrong ones are refused."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from aktis.util.state._rows import Row

R = TypeVar("R", bound=Row)

Filter = tuple[str, str, Any]

_PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left is not None and left < right,
    "<=": lambda left, right: left is not None and left <= right,
    ">": lambda left, right: left is not None and left > right,
    ">=": lambda left, right: left is not None and left >= right,
}

DEFAULT_LIMIT = 100


def select(kind: type[R], rows: Iterable[R], filters: Iterable[Filter] | None, limit: int) -> list[R]:
    """The first `limit` rows that pass all `filters`."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"`limit` is {limit!r}, not an int")
    if limit < 1:
        raise ValueError(f"`limit` is {limit}\nhint: it must be at least 1")
    tests = [_test(kind, condition) for condition in filters or ()]
    chosen = [row for row in rows if all(test(row) for test in tests)]
    return chosen[:limit]


def _test(kind: type[R], condition: Filter) -> Callable[[R], bool]:
    if isinstance(condition, str) or not isinstance(condition, tuple | list) or len(condition) != 3:
        raise ValueError(
            f'the filter {condition!r} is not understood\nhint: filters=[("state", "=", "ALIVE")]'
        )
    column, predicate, value = condition
    if column not in kind.columns():
        known = ", ".join(kind.columns())
        raise ValueError(f"{kind.__name__} has no column {column!r}\nhint: it has {known}")
    if predicate not in _PREDICATES:
        raise ValueError(
            f"the predicate {predicate!r} is not known\nhint: use one of {' '.join(_PREDICATES)}"
        )
    compare = _PREDICATES[predicate]
    wanted = _comparable(value)

    def test(row: R) -> bool:
        found = _comparable(row[column])
        try:
            return compare(found, _like(found, wanted))
        except (TypeError, ValueError):
            if predicate in ("=", "!="):
                return predicate == "!="
            raise ValueError(f"column {column!r} cannot be compared with {value!r} by {predicate}") from None

    return test


def _like(found: Any, wanted: Any) -> Any:
    """Text as it would come from a command line, `("pid", "=", "123")`, in the type of the column."""
    if not isinstance(wanted, str):
        return wanted
    if isinstance(found, bool):
        return {"true": True, "false": False}.get(wanted, wanted)
    return float(wanted) if isinstance(found, int | float) else wanted


def _comparable(value: Any) -> Any:
    """Text is compared without regard to case, and ids by their hexadecimal text."""
    if isinstance(value, str):
        return value.lower()
    if hasattr(value, "hex") and not isinstance(value, float):
        return str(value.hex())
    return value
