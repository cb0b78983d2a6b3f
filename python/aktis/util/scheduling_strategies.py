"""Where a task or an actor shall run: values for the option `scheduling_strategy`.

    group = placement_group([{"CPU": 1}] * 2)
    task.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0))

    node = aktis.get_runtime_context().get_node_id()
    task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))

    task.options(scheduling_strategy=NodeLabelSchedulingStrategy(hard={"zone": In("a", "b"), "spot":
    DoesNotExist()}))

Two more are plain strings: `"DEFAULT"` and `"SPREAD"`.
"""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from aktis.util.placement_group import PlacementGroup

__all__ = [
    "DEFAULT_SCHEDULING_STRATEGY",
    "SPREAD_SCHEDULING_STRATEGY",
    "DoesNotExist",
    "Exists",
    "In",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "PlacementGroupSchedulingStrategy",
    "SchedulingStrategyT",
]

DEFAULT_SCHEDULING_STRATEGY: Literal["DEFAULT"] = "DEFAULT"
SPREAD_SCHEDULING_STRATEGY: Literal["SPREAD"] = "SPREAD"


class _Plain:
    """Equality and a readable text by the attributes."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), repr(vars(self))))


class PlacementGroupSchedulingStrategy(_Plain):
    """Runs in a placement group.

    `placement_group_bundle_index` says in which bundle; -1 is any of them. With
    `placement_group_capture_child_tasks`, what the task submits runs in the group as well, unless it says
    otherwise; else it does not.
    """

    def __init__(
        self,
        placement_group: "PlacementGroup | None",
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        index = placement_group_bundle_index
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"`placement_group_bundle_index` is {index!r}, not an int")
        if index < -1:
            raise ValueError(f"`placement_group_bundle_index` is {index}\nhint: -1 means any bundle")
        self.placement_group = placement_group
        self.placement_group_bundle_index = index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy(_Plain):
    """Runs on the node `node_id` (hexadecimal text, or an id).

    If that node is not there, or cannot hold the work, the work goes elsewhere if `soft` is set and fails
    else.
    """

    def __init__(
        self,
        node_id: Any,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ) -> None:
        from aktis.util._runtime import text_of

        if _spill_on_unavailable and not soft:
            raise ValueError("`_spill_on_unavailable` needs `soft=True`")
        if _fail_on_unavailable and soft:
            raise ValueError("`_fail_on_unavailable` needs `soft=False`")
        self.node_id = text_of(node_id)
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable


class _Values(_Plain):
    def __init__(self, *values: str) -> None:
        if not values:
            raise ValueError(f"`{type(self).__name__}` needs at least one value")
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"{value!r} in `{type(self).__name__}` is no text: labels have text values")
        self.values = list(values)


class In(_Values):
    """The label has one of these values."""


class NotIn(_Values):
    """The label has none of these values, or is not there."""


class Exists(_Plain):
    """The label is there."""


class DoesNotExist(_Plain):
    """The label is not there."""


LabelCondition = In | NotIn | Exists | DoesNotExist


class NodeLabelSchedulingStrategy(_Plain):
    """Runs on a node whose labels fulfil all conditions of `hard`, and if possible those of `soft` too."""

    def __init__(
        self,
        hard: dict[str, LabelCondition] | None = None,
        *,
        soft: dict[str, LabelCondition] | None = None,
    ) -> None:
        self.hard = _conditions("hard", hard)
        self.soft = _conditions("soft", soft)
        if not self.hard and not self.soft:
            raise ValueError("neither `hard` nor `soft` has a condition\nhint: hard={'zone': In('a', 'b')}")


def _conditions(argument: str, conditions: dict[str, LabelCondition] | None) -> dict[str, LabelCondition]:
    if conditions is None:
        return {}
    if not isinstance(conditions, dict):
        raise TypeError(f"`{argument}` is {conditions!r}, not a dict of labels and conditions")
    for label, condition in conditions.items():
        if not isinstance(label, str):
            raise TypeError(f"the label {label!r} in `{argument}` is no text")
        if not isinstance(condition, LabelCondition):
            raise TypeError(
                f"the condition {condition!r} for the label {label!r} in `{argument}` is not known\n"
                "hint: use In(..), NotIn(..), Exists() or DoesNotExist()"
            )
    return dict(conditions)


SchedulingStrategyT = (
    str
    | PlacementGroupSchedulingStrategy
    | NodeAffinitySchedulingStrategy
    | NodeLabelSchedulingStrategy
    | None
)
