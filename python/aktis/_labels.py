"""Labels of nodes, and what tasks and actors want of them: `label_selector`, and strategies by labels.

What no node fulfils waits, with a warning that names the condition, until a node comes that does.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_LIST = re.compile(r"(!?)in\((.*)\)\Z", re.DOTALL)
_TESTS = {"In": "in", "NotIn": "not in", "Exists": "exists", "DoesNotExist": "absent"}

Rule = tuple[str, str, list[str]]


def hard_rules(options: Mapping[str, Any], selector: Mapping[str, str] | None = None) -> list[Rule]:
    """What must hold for the labels of a node; `selector` takes the place of the one in the options."""
    wanted = options.get("label_selector") if selector is None else selector
    return selector_rules(wanted or {}) + _condition_rules(options, "hard")


def soft_rules(options: Mapping[str, Any]) -> list[Rule]:
    """What should hold for them."""
    return _condition_rules(options, "soft")


def selector_rules(selector: Mapping[str, str]) -> list[Rule]:
    """`value`, `!value`, `in(one, two)` or `!in(one, two)`. A label that is not there has no value."""
    return [_selector_rule(name, wanted) for name, wanted in selector.items()]


def fallback(options: Mapping[str, Any], nodes: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """The first selector that a node with such labels fulfils: the own one, or one of those that may take its
    place."""
    labels = list(nodes)
    own: Mapping[str, str] = options.get("label_selector") or {}
    others = [item.get("label_selector") or {} for item in options.get("fallback_strategy") or ()]
    for selector in (own, *others):
        rules = hard_rules(options, selector)
        if any(all(_holds(rule, of_node) for rule in rules) for of_node in labels):
            return selector
    return own


def _selector_rule(name: str, wanted: str) -> Rule:
    found = _LIST.match(wanted)
    if found is None:
        negated = wanted.startswith("!")
        return name, "not in" if negated else "in", [wanted[1:] if negated else wanted]
    return name, "not in" if found[1] else "in", [value.strip() for value in found[2].split(",")]


def _condition_rules(options: Mapping[str, Any], which: str) -> list[Rule]:
    strategy = options.get("scheduling_strategy")
    conditions = getattr(strategy, which, None) if hasattr(strategy, "hard") else None
    return [
        (name, _TESTS[type(condition).__name__], list(getattr(condition, "values", ())))
        for name, condition in (conditions or {}).items()
    ]


def _holds(rule: Rule, labels: Mapping[str, str]) -> bool:
    name, test, values = rule
    label = labels.get(name)
    if test == "in":
        return label in values
    if test == "not in":
        return label not in values
    return (label is not None) == (test == "exists")
