"""What an argument and a result of a plain type cost beyond an empty call."""

from typing import Any

from clock import Clock
from figure import Demand, Shape
from row import Row, both

VALUES: dict[str, Any] = {
    "int": 123_456,
    "float": 2.5,
    "str": "a few words of text",
    "tuple": (1, 2.5, "three"),
}
BATCH = 50
IN_FLIGHT = 200


def overheads(api: Any, clock: Clock) -> dict[str, float]:
    @api.remote
    def empty() -> None:
        return None

    @api.remote
    def echo(value: Any) -> Any:
        return value

    def one(value: Any) -> Any:
        def operation() -> None:
            assert api.get(echo.remote(value)) == value

        return operation

    def many(value: Any) -> Any:
        def operation() -> None:
            assert api.get([echo.remote(value) for _ in range(IN_FLIGHT)])[-1] == value

        return operation

    def one_empty() -> None:
        assert api.get(empty.remote()) is None

    def many_empty() -> None:
        assert api.get([empty.remote() for _ in range(IN_FLIGHT)])[-1] is None

    alone = clock.by_turns([one_empty, *map(one, VALUES.values())], BATCH)
    together = clock.by_turns([many_empty, *map(many, VALUES.values())], 1)
    figures = {"empty-call": alone[0] * 1e6}
    for name, each, all_of_them in zip(VALUES, alone[1:], together[1:]):
        figures[f"argument-{name}"] = (each - alone[0]) * 1e6
        figures[f"argument-{name}-in-flight"] = (all_of_them - together[0]) / IN_FLIGHT * 1e6
    return figures


def shapes() -> tuple[Shape, ...]:
    limit = (Demand("", 1),)
    found = [Shape("empty-call", "an empty call, one at a time", "us", less_is_better=True)]
    for name in VALUES:
        title = f"argument and result: {name}"
        found.append(Shape(f"argument-{name}", f"{title}, more than empty", "us", limit, less_is_better=True))
        key = f"argument-{name}-in-flight"
        found.append(Shape(key, f"{title}, in flight", "us", limit, less_is_better=True))
    return tuple(found)


ROWS = [Row("arguments", shapes(), both(overheads))]
