"""Says what it is about a function or value that cannot be sent to workers.

    lock = threading.Lock()

    def work() -> None:
        with lock: ...

    inspect_serializability(work)

prints

    'work' (function) cannot be serialised: cannot pickle '_thread.lock' object
    └─ the global variable 'lock' (_thread.lock): cannot pickle '_thread.lock' object
    hint: make what is named above inside the function, or leave it out
"""

import re
import sys
from typing import Any, NamedTuple, TextIO

from aktis import _serialization

__all__ = ["FailureTuple", "inspect_serializability"]


class FailureTuple(NamedTuple):
    """A culprit. Two are equal if they are the same object in the same place."""

    obj: Any
    """What cannot be serialised."""
    name: str
    """The name of the variable, attribute or item it was found in."""
    parent: Any
    """What it was found in: the function, object or container."""

    def __hash__(self) -> int:
        return hash((id(self.obj), self.name, id(self.parent)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FailureTuple):
            return False
        return self.obj is other.obj and self.name == other.name and self.parent is other.parent

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        parent = getattr(self.parent, "__name__", type(self.parent).__name__)
        return f"FailureTuple({self.name} [obj={self.obj!r}, parent={parent}])"


def inspect_serializability(
    base_obj: Any,
    name: str | None = None,
    depth: int = 3,
    print_file: TextIO | None = None,
    **_ignored: Any,
) -> tuple[bool, set[FailureTuple]]:
    """Whether `base_obj` can be serialised, and else what in it cannot: `(ok, culprits)`.

    Closures, globals, defaults, attributes, members and items are searched, `depth` levels deep; the
    culprits are the innermost parts found. What was found is printed as a tree, to `print_file` or to the
    standard output.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
        raise ValueError(
            f"`depth` is {depth!r}\nhint: it is the number of levels that are searched, such as 3"
        )
    out = print_file or sys.stdout
    label = name or getattr(base_obj, "__qualname__", None) or repr(base_obj)
    problem = _problem(base_obj)
    if problem is None:
        print(f"{label!r} ({_kind(base_obj)}) can be serialised", file=out)
        return True, set()
    print(f"{label!r} ({_kind(base_obj)}) cannot be serialised: {problem}", file=out)
    failures: set[FailureTuple] = set()
    if not _walk(base_obj, depth, "", {id(base_obj)}, failures, out):
        failures.add(FailureTuple(base_obj, name or _name_of(base_obj), base_obj))
    print("hint: make what is named above inside the function, or leave it out", file=out)
    return False, failures


def _walk(
    value: Any, depth: int, indent: str, seen: set[int], failures: set[FailureTuple], out: TextIO
) -> bool:
    """Prints the parts of `value` that cannot be serialised, and adds the innermost; False if there are
    none."""
    if depth == 0:
        return False
    bad = []
    for step, part in _serialization.parts(value):
        if id(part) not in seen and (problem := _problem(part)) is not None:
            seen.add(id(part))
            bad.append((step, part, problem))
    for index, (step, part, problem) in enumerate(bad):
        last = index == len(bad) - 1
        print(f"{indent}{'└─' if last else '├─'} {step} ({_kind(part)}): {problem}", file=out)
        if not _walk(part, depth - 1, indent + ("   " if last else "│  "), seen, failures, out):
            failures.add(FailureTuple(part, _short(step), value))
    return bool(bad)


def _problem(value: Any) -> str | None:
    """Why pickle refuses a value, in one line; None if it does not."""
    import io

    try:
        _serialization.Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: None).dump(value)
    except Exception as error:
        text = str(error).split("\n", 1)[0]
        return text or type(error).__name__
    return None


def _short(step: str) -> str:
    """The name alone: `lock` of "the closure variable 'lock'", `socket` of "the attribute
    Connection.socket"."""
    if quoted := re.search(r"'(.*)'", step):
        return quoted[1]
    return step.rsplit(" ", 1)[-1].rsplit(".", 1)[-1].strip("[]")


def _name_of(value: Any) -> str:
    return str(getattr(value, "__name__", None) or repr(value))


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
