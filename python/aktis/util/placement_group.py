"""Placement groups: resources reserved together, all or none, for tasks and actors that belong together.

    group = placement_group([{"CPU": 1}, {"CPU": 1, "GPU": 1}], strategy="PACK")
    aktis.get(group.ready())

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1)
    trainer = Trainer.options(num_gpus=1, scheduling_strategy=strategy).remote()

    remove_placement_group(group)

Creation is asynchronous: `placement_group` returns at once, and `ready()` is a reference that is resolved
when all bundles are reserved. A removed group takes its actors with it and fails its tasks.
"""

import math
from typing import TYPE_CHECKING, Any

from aktis import _labels
from aktis.exceptions import AktisSystemError
from aktis.util._runtime import runtime, text_of

if TYPE_CHECKING:
    from aktis import ObjectRef

__all__ = [
    "NODE_ID_LABEL_KEY",
    "VALID_PLACEMENT_GROUP_STRATEGIES",
    "PlacementGroup",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
    "validate_placement_group",
]

VALID_PLACEMENT_GROUP_STRATEGIES = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}

NODE_ID_LABEL_KEY = "ray.io/node-id"
"""The label that every node has, with its id as value."""

# The engine counts resources in steps of this size.
_PRECISION = 0.0001


class PlacementGroup:
    """A handle of a placement group. It can be passed to tasks and actors."""

    def __init__(
        self,
        id: Any,
        bundle_cache: list[dict[str, float]] | None = None,
        _ready: "ObjectRef[None] | None" = None,
    ) -> None:
        from aktis import _ids

        self.id = _ids.PlacementGroupID(bytes.fromhex(text_of(id)))
        self._bundles = bundle_cache
        self._ready = _ready

    @staticmethod
    def empty() -> "PlacementGroup":
        """Stands for "no group": work with this group runs outside of any, also where it would inherit
        one."""
        from aktis import _ids

        return PlacementGroup(_ids.PlacementGroupID.nil(), [])

    @property
    def is_empty(self) -> bool:
        """Whether this is `empty()`."""
        return bool(self.id.is_nil())

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """What was asked for: the resources of each bundle."""
        if self._bundles is None:
            self._bundles = _bundles_of(_row(self.id.hex()))
        return [dict(bundle) for bundle in self._bundles]

    @property
    def bundle_count(self) -> int:
        """The number of bundles."""
        return len(self.bundle_specs)

    def ready(self) -> "ObjectRef[None]":
        """A reference that is resolved when all bundles are reserved, and fails if the group is removed
        before."""
        if self._ready is None:
            # This handle came by name, from the context, or from another process.
            self._ready = runtime().watch_group(self.id.binary())
        return self._ready

    def wait(self, timeout_seconds: float | None = 30) -> bool:
        """Waits until the group is ready; False if it is not after `timeout_seconds`."""
        import aktis

        ready, _ = aktis.wait([self.ready()], num_returns=1, timeout=timeout_seconds)
        if not ready:
            return False
        aktis.get(ready[0])
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and bool(other.id == self.id)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacementGroup, (self.id.hex(), self._bundles)


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str = "PACK",
    name: str = "",
    lifetime: str | None = None,
    _max_cpu_fraction_per_node: float = 1.0,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
) -> PlacementGroup:
    """Reserves `bundles` of resources, all or none, and returns at once.

    `strategy` says how they are spread: `"PACK"` on as few nodes as possible, `"SPREAD"` on as many as
    possible, `"STRICT_PACK"` on one node, `"STRICT_SPREAD"` each on another. A group without
    `lifetime="detached"` ends with the program that made it. `name` is for `get_placement_group`.

    Raises ValueError if the request can never make sense; what no node can hold today stays pending.
    """
    wanted = _checked_bundles(bundles)
    _check_strategy(strategy)
    if lifetime not in (None, "detached"):
        raise ValueError(
            f'`lifetime` is {lifetime!r}\nhint: use None (it ends with this program) or "detached"'
        )
    if not isinstance(name, str):
        raise ValueError(f"`name` is {name!r}, which is no text")
    if not 0 < _max_cpu_fraction_per_node <= 1:
        raise ValueError(f"`_max_cpu_fraction_per_node` is {_max_cpu_fraction_per_node}, not in (0, 1]")
    if bundle_label_selector is not None and len(bundle_label_selector) != len(wanted):
        raise ValueError(
            f"`bundle_label_selector` has {len(bundle_label_selector)} items for {len(wanted)} bundles"
        )
    full = _full_name(name)
    if name and _find_by_name(full) is not None:
        raise PlacementGroupNameTakenError(
            f"there is a placement group named {name!r} already\nhint: get_placement_group({name!r})"
        )
    found = runtime()
    labels = [_labels.selector_rules(selector) for selector in bundle_label_selector or ()]
    identity, ready = found.create_group(wanted, labels, strategy, full, lifetime == "detached")
    return PlacementGroup(identity, wanted, ready)


class PlacementGroupNameTakenError(AktisSystemError, ValueError):
    """Another placement group of the namespace has the name. Ray's programs expect the one class, others the
    other."""


def validate_placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    lifetime: str | None = None,
    _max_cpu_fraction_per_node: float = 1.0,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    *,
    topology_strategy: dict[str, str] | None = None,
) -> bool:
    """The check that `placement_group` makes, without a cluster; True, or ValueError.

    `topology_strategy` says for a label of nodes how bundles lie: `{"ray.io/node-id": "SPREAD"}`, and for
    at most one other label `"STRICT_PACK"`, which means nodes with one value of that label.
    """
    if strategy is not None and topology_strategy is not None:
        raise ValueError("`strategy` and `topology_strategy` cannot both be given")
    if topology_strategy is not None:
        _check_topology(topology_strategy)
    else:
        _check_strategy("PACK" if strategy is None else strategy)
    wanted = _checked_bundles(bundles)
    if lifetime not in (None, "detached"):
        raise ValueError(f'`lifetime` is {lifetime!r}\nhint: use None or "detached"')
    if not 0 < _max_cpu_fraction_per_node <= 1:
        raise ValueError(f"`_max_cpu_fraction_per_node` is {_max_cpu_fraction_per_node}, not in (0, 1]")
    if bundle_label_selector is not None and len(bundle_label_selector) != len(wanted):
        raise ValueError(
            f"`bundle_label_selector` has {len(bundle_label_selector)} items for {len(wanted)} bundles"
        )
    return True


def _check_strategy(strategy: Any) -> None:
    if strategy not in VALID_PLACEMENT_GROUP_STRATEGIES:
        known = ", ".join(sorted(VALID_PLACEMENT_GROUP_STRATEGIES))
        raise ValueError(f"Invalid placement group strategy {strategy!r}\nhint: use one of {known}")


def _check_topology(topology: Any) -> None:
    if not isinstance(topology, dict):
        raise ValueError(f"`topology_strategy` must be a dict from labels to strategies, not {topology!r}")
    others = []
    for label, strategy in topology.items():
        if not isinstance(label, str) or not label:
            raise ValueError(f"`topology_strategy` keys must be non-empty strings, not {label!r}")
        if strategy not in VALID_PLACEMENT_GROUP_STRATEGIES:
            known = ", ".join(sorted(VALID_PLACEMENT_GROUP_STRATEGIES))
            raise ValueError(
                f"Invalid topology strategy {strategy!r} for {label!r}\nhint: use one of {known}"
            )
        if label == NODE_ID_LABEL_KEY:
            continue
        others.append(label)
        if strategy != "STRICT_PACK":
            raise ValueError(f"for the label {label!r} only 'STRICT_PACK' is supported, not {strategy!r}")
    if len(others) > 1:
        raise ValueError(f"there can be at most one topology label besides the node's id, not {others}")


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives the resources back. Actors in the group are killed and its tasks fail. Removing twice does no
    harm."""
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"{placement_group!r} is no PlacementGroup")
    row = _row(placement_group.id.hex())
    runtime().remove_group(placement_group.id.binary())
    if row is not None:
        _note_removed(row)


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group with this name. Raises ValueError if there is none."""
    if not placement_group_name:
        raise ValueError("the name of a placement group cannot be empty")
    row = _find_by_name(_full_name(placement_group_name))
    if row is None:
        raise ValueError(
            f"there is no placement group named {placement_group_name!r}\n"
            "hint: it may have been removed, or have ended with the program that made it"
        )
    return PlacementGroup(row["id"], _bundles_of(row))


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """What is known about a group; or about all of them, by their ids.

        {"placement_group_id": "a4..", "name": "", "strategy": "PACK", "state": "CREATED",
         "bundles": {0: {"CPU": 1.0}}, "bundles_to_node_id": {0: "c0.."}, "stats": {}}

    `state` is "PENDING", "CREATED" or "REMOVED". Of groups that were removed the last thousand are known.
    """
    if placement_group is None:
        return {**removed_groups(), **{text_of(row["id"]): _table(row) for row in _rows()}}
    row = _row(placement_group.id.hex())
    if row is not None:
        return _table(row)
    return _removed(placement_group.id.hex())


def get_current_placement_group() -> PlacementGroup | None:
    """The group that the calling task or actor runs in; None in a driver, and outside of groups."""
    from aktis import _engine

    if _engine.current() is None:
        return None
    place = _engine.context().group
    return None if place is None else PlacementGroup(place[0])


def _checked_bundles(bundles: Any) -> list[dict[str, float]]:
    if not isinstance(bundles, list):
        raise ValueError(
            f"`bundles` is {bundles!r}, not a list of dicts\nhint: placement_group([{{'CPU': 1}}])"
        )
    if not bundles:
        raise ValueError("`bundles` is empty\nhint: placement_group([{'CPU': 1}])")
    return [_checked_bundle(index, bundle) for index, bundle in enumerate(bundles)]


def _checked_bundle(index: int, bundle: Any) -> dict[str, float]:
    if not isinstance(bundle, dict):
        raise ValueError(f"bundle {index} is {bundle!r}, not a dict of resources\nhint: {{'CPU': 1}}")
    checked: dict[str, float] = {}
    for name, amount in bundle.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"bundle {index} has the resource {name!r}, which is no text")
        if name == "bundle":
            raise ValueError(f"bundle {index} has the resource 'bundle', which is reserved\nhint: rename it")
        if name == "object_store_memory":
            import warnings

            warnings.warn(
                "Setting 'object_store_memory' for bundles is deprecated: it has no effect",
                DeprecationWarning,
                stacklevel=4,
            )
            continue
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not math.isfinite(amount):
            raise ValueError(f"bundle {index} has {amount!r} of {name!r}, which is no number")
        if amount < 0:
            raise ValueError(f"bundle {index} has {amount} of {name!r}, which is negative")
        if 0 < amount < _PRECISION:
            raise ValueError(f"bundle {index} has {amount} of {name!r}, below the precision of {_PRECISION}")
        if amount > 0:
            checked[name] = float(amount)
    if not checked:
        raise ValueError(
            f"bundle {index} reserves nothing: {bundle!r}\nhint: leave it out, or ask for something"
        )
    return checked


# Removed groups are kept in the key-value space, for all processes of the session.
_REMOVED = b"aktis.removed-group/"
_REMOVED_MAX = 1000


def _note_removed(row: dict[str, Any]) -> None:
    import json
    import time

    session = runtime()
    table = {**_table(row), "state": "REMOVED", "removed": time.time()}
    session.key_put(_REMOVED + text_of(row["id"]).encode(), json.dumps(table).encode(), False)
    known = session.key_list(_REMOVED)
    if len(known) > _REMOVED_MAX:
        oldest = sorted(removed_groups().items(), key=lambda item: float(item[1].get("removed", 0.0)))
        for identity, _ in oldest[: len(known) - _REMOVED_MAX]:
            session.key_delete(_REMOVED + identity.encode())


def _removed(identity: str) -> dict[str, Any]:
    import json

    found = runtime().key_get(_REMOVED + identity.encode())
    if found is None:
        return {}
    table: dict[str, Any] = json.loads(found)
    for name in ("bundles", "bundles_to_node_id"):
        table[name] = {int(index): item for index, item in table[name].items()}
    return table


def removed_groups() -> dict[str, dict[str, Any]]:
    """The tables of groups that were removed, by id; see `_REMOVED_MAX`."""
    names = [key.removeprefix(_REMOVED).decode() for key in runtime().key_list(_REMOVED)]
    return {name: _removed(name) for name in names}


def _rows() -> list[dict[str, Any]]:
    return runtime().state("groups")


def _row(identity: str) -> dict[str, Any] | None:
    return next((row for row in _rows() if text_of(row["id"]) == identity), None)


def _full_name(name: str) -> str:
    """The name as the engine knows it: names are unique within a namespace."""
    from aktis import _actor, _session

    return _actor.full_name(_session.namespace(), name) if name else ""


def _find_by_name(name: str) -> dict[str, Any] | None:
    for row in _rows():
        if row.get("name") == name and str(row.get("state", "")).upper() != "REMOVED":
            return row
    return None


def _bundles_of(row: dict[str, Any] | None) -> list[dict[str, float]]:
    return [] if row is None else [dict(bundle) for bundle in row.get("bundles", [])]


def _table(row: dict[str, Any]) -> dict[str, Any]:
    from aktis import _actor

    bundles = _bundles_of(row)
    nodes = row.get("nodes") or []
    return {
        "placement_group_id": text_of(row["id"]),
        "name": _actor.split_name(row.get("name") or "")[1],
        "strategy": row.get("strategy", "PACK"),
        "state": str(row.get("state", "PENDING")).upper(),
        "bundles": dict(enumerate(bundles)),
        "bundles_to_node_id": {index: text_of(node) for index, node in enumerate(nodes) if node},
        "stats": dict(row.get("stats") or {}),
    }
