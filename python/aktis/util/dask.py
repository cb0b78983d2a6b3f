"""A scheduler for Dask: its graphs run as tasks, and intermediate values stay in the object store.

    import dask.array
    from aktis.util.dask import enable_dask_on_ray

    enable_dask_on_ray()
    dask.array.ones((1000, 1000)).sum().compute()

Dask is not installed with Aktis. `ray_dask_get` can also be given to a single call:
`compute(scheduler=ray_dask_get)`. With `ray_persist=True`, `persist` keeps references in the collection
instead of values. Options of tasks come from `ray_remote_args` (a dictionary), as an argument or by
`dask.annotate(ray_remote_args=...)`.
"""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["disable_dask_on_ray", "enable_dask_on_ray", "ray_dask_get", "ray_dask_get_sync"]


def ray_dask_get(
    dsk: Mapping[Any, Any],
    keys: Any,
    *,
    ray_persist: bool = False,
    ray_remote_args: Mapping[str, Any] | None = None,
    **_: Any,
) -> Any:
    """Runs a graph of Dask's, and gives the values of `keys`; references to them with `ray_persist`."""
    import aktis
    from aktis.util._runtime import remote

    run = remote(_run)

    def submit(node: Any, names: list[Any], given: list[Any], options: Mapping[str, Any]) -> Any:
        chosen = run.options(**{"name": f"dask:{_name(node.key)}", **options})
        return chosen.remote(node, names, *given)

    found = _walk(dsk, keys, submit, ray_remote_args or {})
    if ray_persist:
        return _repack(keys, found)
    wanted = list(dict.fromkeys(_flat(keys)))
    # The value of a collection that was persisted is a reference itself.
    while references := [key for key in wanted if isinstance(found[key], aktis.ObjectRef)]:
        found.update(zip(references, aktis.get([found[key] for key in references]), strict=True))
    return _repack(keys, found)


def ray_dask_get_sync(dsk: Mapping[Any, Any], keys: Any, **_: Any) -> Any:
    """Runs a graph of Dask's in the calling process, one task after the other, to find mistakes in it."""
    import aktis

    def run(node: Any, names: list[Any], given: list[Any], options: Mapping[str, Any]) -> Any:
        values = [aktis.get(item) if isinstance(item, aktis.ObjectRef) else item for item in given]
        return _run(node, names, *values)

    return _repack(keys, _walk(dsk, keys, run, {}))


def enable_dask_on_ray(shuffle: str | None = "tasks", use_shuffle_optimization: bool | None = True) -> Any:
    """Makes `ray_dask_get` Dask's scheduler; for a while only, where it is used with `with`."""
    import dask

    settings = {"scheduler": ray_dask_get}
    if shuffle is not None:
        settings["dataframe.shuffle.method"] = shuffle  # type: ignore[assignment]
    return dask.config.set(settings)


def disable_dask_on_ray() -> Any:
    """Gives Dask its own schedulers back."""
    import dask

    return dask.config.set(scheduler=None)


def _run(node: Any, names: list[Any], *values: Any) -> Any:
    """Calls a node of a graph with the values of the nodes that it depends on."""
    return node(dict(zip(names, values, strict=True)))


Submit = Callable[[Any, list[Any], list[Any], Mapping[str, Any]], Any]


def _walk(dsk: Mapping[Any, Any], keys: Any, submit: Submit, usual: Mapping[str, Any]) -> dict[Any, Any]:
    """Submits what `keys` need, each node after those that it depends on; gives what became of each."""
    from dask._task_spec import Alias, DataNode, convert_legacy_graph

    options = _annotations(dsk)
    # Newer versions of Dask hand over an expression, of which the graph is made.
    made = dsk.__dask_graph__() if hasattr(dsk, "__dask_graph__") else dsk
    graph = convert_legacy_graph(dict(made))
    found: dict[Any, Any] = {}
    open_ends = list(_flat(keys))
    while open_ends:
        key = open_ends[-1]
        if key in found:
            open_ends.pop()
            continue
        node = graph[key]
        missing = [name for name in node.dependencies if name not in found]
        if missing:
            open_ends += missing
            continue
        if isinstance(node, DataNode):
            found[key] = node.value
        elif isinstance(node, Alias):
            found[key] = found[node.target]
        else:
            names = list(node.dependencies)
            given = [found[name] for name in names]
            found[key] = submit(node, names, given, {**usual, **options.get(key, {})})
    return found


def _annotations(dsk: Any) -> dict[Any, dict[str, Any]]:
    """The options of tasks that the layers of a graph are annotated with, by key."""
    found: dict[Any, dict[str, Any]] = {}
    told: dict[str, Any] = getattr(dsk, "__dask_annotations__", dict)()
    for key, wanted in (told.get("ray_remote_args") or {}).items():
        found[key] = dict(wanted)
    for layer in getattr(dsk, "layers", {}).values():
        wanted = (layer.annotations or {}).get("ray_remote_args")
        if wanted:
            found.update({key: dict(wanted) for key in layer.get_output_keys()})
    return found


def _flat(keys: Any) -> list[Any]:
    return [found for key in keys for found in _flat(key)] if isinstance(keys, list) else [keys]


def _repack(keys: Any, values: Mapping[Any, Any]) -> Any:
    return [_repack(key, values) for key in keys] if isinstance(keys, list) else values[keys]


def _name(key: Any) -> str:
    return str(key[0] if isinstance(key, tuple) and key else key)[:60]
