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

    Small values that travel inline are where the process is that asks.
    """
    return _with_inline(_locations(obj_refs, state("objects")))


def get_local_object_locations(obj_refs: "list[ObjectRef[Any]]") -> "dict[ObjectRef[Any], dict[str, Any]]":
    """The same, but `node_ids` tells only whether this node has the objects."""
    found = _locations(obj_refs, runtime().state("objects"))
    everywhere = _locations(obj_refs, state("objects"))
    # What lies on another node is known here by its size alone.
    elsewhere = {ref for ref in found if everywhere[ref]["node_ids"] and not found[ref]["node_ids"]}
    for ref in elsewhere:
        found[ref]["object_size"] = everywhere[ref]["object_size"]
    return {**found, **_with_inline({ref: found[ref] for ref in found if ref not in elsewhere})}


def _with_inline(found: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """The same with values that this process holds itself."""
    import aktis
    from aktis._serialization import dumps_whole

    here = aktis.get_runtime_context().get_node_id()
    for ref, location in found.items():
        if location["node_ids"] or not ref.is_ready():
            continue
        try:
            size = len(dumps_whole(aktis.get(ref, timeout=0)))
        except Exception:
            continue  # it failed, or is on its way
        location.update(node_ids=[here], object_size=size)
    return found


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
