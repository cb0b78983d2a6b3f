"""Labels of nodes, and what tasks and actors want of them: `label_selector`, and strategies by labels.

What no node fulfils is asked for like a resource that no node has: the work waits, with a warning that names
it, until a node comes that has it.
"""

import re
from collections.abc import Mapping
from typing import Any

_LIST = re.compile(r"(!?)in\((.*)\)\Z", re.DOTALL)


def conditions(options: Mapping[str, Any]) -> bool:
    """Whether the options say anything about labels."""
    chosen = options.get("scheduling_strategy")
    return bool(options.get("label_selector") or getattr(chosen, "hard", None))


def lacking(options: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, float]:
    """What a node with these labels lacks, as resources; nothing if it fulfils all conditions."""
    unmet = _unmet_selector(options.get("label_selector") or {}, labels)
    fallbacks = options.get("fallback_strategy") or ()
    if unmet and any(not _unmet_selector(item.get("label_selector") or {}, labels) for item in fallbacks):
        unmet = []
    hard = getattr(options.get("scheduling_strategy"), "hard", None) or {}
    unmet += [
        f"label {name} {_text(condition)}"
        for name, condition in hard.items()
        if not _fulfils_condition(labels.get(name), condition)
    ]
    return dict.fromkeys(unmet, 1.0)


def lacking_in_bundle(selector: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, float]:
    """The same for a bundle of a placement group."""
    return dict.fromkeys(_unmet_selector(selector, labels), 1.0)


def _unmet_selector(selector: Mapping[str, str], labels: Mapping[str, str]) -> list[str]:
    return [
        f"label {name}={value}" for name, value in selector.items() if not _fulfils(labels.get(name), value)
    ]


def _fulfils(label: str | None, wanted: str) -> bool:
    """`value`, `!value`, `in(one, two)` or `!in(one, two)`. A label that is not there has no value."""
    found = _LIST.match(wanted)
    if found is None:
        return label != wanted[1:] if wanted.startswith("!") else label == wanted
    values = [value.strip() for value in found[2].split(",")]
    return (label in values) != bool(found[1])


def _fulfils_condition(label: str | None, condition: Any) -> bool:
    kind = type(condition).__name__
    if kind == "In":
        return label in condition.values
    if kind == "NotIn":
        return label not in condition.values
    return (label is not None) == (kind == "Exists")


def _text(condition: Any) -> str:
    values = ", ".join(getattr(condition, "values", ()))
    return {"In": f"in ({values})", "NotIn": f"not in ({values})", "Exists": "exists"}.get(
        type(condition).__name__, "does not exist"
    )
