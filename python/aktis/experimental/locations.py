"""Where objects are."""

from typing import TYPE_CHECKING, Any

from aktis.util._runtime import runtime, text_of

if TYPE_CHECKING:
    from aktis import ObjectRef

__all__ = ["get_local_object_locations", "get_object_locations"]


def get_object_locations(
    obj_refs: "list[ObjectRef[Any]]", timeout_ms: int = -1
) -> "dict[ObjectRef[Any], dict[str, Any]]":
    """For each reference the nodes that have the object, its size, and whether it lies on disk:

        {ref: {"node_ids": ["c0.."], "object_size": 800, "did_spill": False}}

    Values that travel inline have no location.
    """
    from aktis.util.state import list_objects

    if not isinstance(obj_refs, list):
        raise TypeError(f"`obj_refs` is {obj_refs!r}, not a list of references")
    rows = {row.object_id: row for row in list_objects(limit=2**62)}
    node = next((text_of(row["id"]) for row in runtime().state("nodes")), "")
    locations: dict[ObjectRef[Any], dict[str, Any]] = {}
    for ref in obj_refs:
        row = rows.get(ref.hex())
        locations[ref] = {
            "node_ids": [] if row is None else [row.node_id or node],
            "object_size": None if row is None else row.object_size,
            "did_spill": bool(row is not None and row.spilled),
        }
    return locations


def get_local_object_locations(obj_refs: "list[ObjectRef[Any]]") -> "dict[ObjectRef[Any], dict[str, Any]]":
    """`get_object_locations`, from what this node knows; with one node, that is all."""
    return get_object_locations(obj_refs)
