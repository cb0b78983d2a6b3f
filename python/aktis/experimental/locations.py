"""Where objects are."""

from typing import TYPE_CHECKING, Any

from aktis.util._runtime import runtime, state, text_of

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
    return _locations(obj_refs, state("objects"))


def get_local_object_locations(obj_refs: "list[ObjectRef[Any]]") -> "dict[ObjectRef[Any], dict[str, Any]]":
    """The same, but whether this node has the objects, and no question to any other."""
    return _locations(obj_refs, runtime().state("objects"))


def _locations(refs: "list[ObjectRef[Any]]", rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    if not isinstance(refs, list):
        raise TypeError(f"`obj_refs` is {refs!r}, not a list of references")
    wanted = {ref.hex() for ref in refs}
    copies: dict[str, list[dict[str, Any]]] = {name: [] for name in wanted}
    for row in rows:
        if (name := text_of(row["id"])) in wanted and row["state"] != "CREATING":
            copies[name].append(row)
    return {
        ref: {
            "node_ids": [text_of(row["node"]) for row in copies[ref.hex()]],
            "object_size": next((row["size"] for row in copies[ref.hex()]), None),
            "did_spill": any(row["spilled"] for row in copies[ref.hex()]),
        }
        for ref in refs
    }
