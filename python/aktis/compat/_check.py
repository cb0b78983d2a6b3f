"""`python -m aktis.compat --check program.py`: names of Ray's in a program that are missing or differ.

The program is read, not run. What is found are imports from `ray` and below, and chains of attributes that
begin with a name which such an import has bound; what a program gets in other ways is not seen.
"""

import ast
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from aktis.compat import _missing, _table


class Finding(NamedTuple):
    """A name in a program that is missing or differs."""

    file: str
    line: int
    name: str
    kind: str
    note: str

    def __str__(self) -> str:
        verb = "is missing" if self.kind == "missing" else "differs"
        return f"{self.file}:{self.line}: {self.name} {verb}" + (f": {self.note}" if self.note else "")


def check(path: str) -> list[Finding]:
    """What is found in a file, or in all Python files below a folder. SyntaxError for what is no Python."""
    found = [finding for file in _files(path) for finding in _check_file(file)]
    return sorted(set(found), key=lambda finding: (finding.file, finding.line, finding.name))


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def _check_file(file: str) -> list[Finding]:
    with open(file, "rb") as source:
        tree = ast.parse(source.read(), file)
    bound: dict[str, str] = {}
    uses: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ray(alias.name):
                    bound[alias.asname or "ray"] = alias.name if alias.asname else "ray"
                    uses.append((node.lineno, alias.name))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and _is_ray(node.module or ""):
            for alias in node.names:
                full = f"{node.module}.{alias.name}" if alias.name != "*" else str(node.module)
                bound[alias.asname or alias.name] = full
                uses.append((node.lineno, full))
    uses += _chains(tree, bound)
    findings = []
    for line, full in uses:
        kind, name, note = _look_up(full)
        if kind != "there":
            findings.append(Finding(file, line, name, kind, note))
    return findings


def _chains(tree: ast.AST, bound: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Chains such as `ray.util.queue.Queue`, by the full names of what they mean."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        parts: list[str] = []
        current: ast.expr = node
        while isinstance(current, ast.Attribute):
            inner.add(id(current))
            parts.append(current.attr)
            current = current.value
        if isinstance(current, ast.Name) and current.id in bound:
            yield node.lineno, ".".join([bound[current.id], *reversed(parts)])


def _is_ray(module: str) -> bool:
    return module == "ray" or module.startswith("ray.")


def _look_up(full: str) -> tuple[str, str, str]:
    """Whether a dotted name is there, the part of it that is not or differs, and what is said of that."""
    parts = full.split(".")
    for end in range(2, len(parts) + 1):
        name = ".".join(parts[:end])
        kind, note = _table.note_of(name)
        if kind == "different":
            return kind, name, note
        if kind == "missing" and (end == len(parts) or not _is_there(".".join(parts[: end + 1]))):
            return kind, name, note
    return ("there", "", "") if _is_there(full) else ("missing", full, "")


def _is_there(full: str) -> bool:
    """Whether the compatibility layer has the name. What lies behind a class or function is not looked at."""
    value: object = sys.modules["ray"]
    for part in full.split(".")[1:]:
        if part.startswith("__"):
            return True
        try:
            value = getattr(value, part)
        except AttributeError:
            return not isinstance(value, type(sys))
        if isinstance(value, _missing.Missing):
            return False
        if not isinstance(value, type(sys)):
            return True
    return not isinstance(value, _missing.Placeholder) or bool(vars(value).get("__moved__"))


def main(paths: list[str]) -> int:
    """Prints what is found; 1 if something is missing, 2 if a program cannot be read."""
    if not paths:
        print("aktis.compat: --check needs a program or a folder", file=sys.stderr)
        return 2
    findings: list[Finding] = []
    for path in paths:
        try:
            findings += check(path)
        except (OSError, SyntaxError, ValueError) as error:
            print(f"aktis.compat: cannot read {path}: {error}", file=sys.stderr)
            return 2
    for finding in findings:
        print(finding)
    missing = sum(finding.kind == "missing" for finding in findings)
    print(f"{missing} names are missing, {len(findings) - missing} differ")
    return 1 if missing else 0
