"""Where other programs find the nodes that running programs of this user have started.

Each such node has a file in a private directory: its name says when the node came and whose it is, its lines
say where it listens. A file whose process is gone counts for nothing, and goes when somebody looks.
"""

import contextlib
import os
import time
from typing import NamedTuple

from aktis import _private_directory

ENTRIES_MAX = 4096
"""So many files are looked at."""


class Entry(NamedTuple):
    """A node of a running program."""

    began: float
    pid: int
    address: str
    directory: str
    path: str


class Announcement:
    """Says where a node listens, until `withdraw`, or until this process is gone."""

    def __init__(self, directory: str, address: str) -> None:
        def write(path: str) -> None:
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(f"{address}\n{directory}\n")
            os.rename(path + ".new", path)

        self._path = os.path.join(_home(), f"{time.time_ns()}-{os.getpid()}")
        _private_directory.write(self._path, write)

    def withdraw(self) -> None:
        """The node is gone. Does nothing the second time."""
        _private_directory.remove(self._path)


def find(address: str) -> Entry | None:
    """The youngest node of a running program that this address means: "auto" is any, "host:port" one. Where
    there can be no files, there is none."""
    try:
        found = [entry for entry in _entries() if address in ("auto", entry.address)]
    except OSError:
        return None
    return max(found, default=None)


def is_younger(entry: Entry, directory: os.PathLike[str]) -> bool:
    """Whether it came after the daemon of that directory, if one runs there."""
    with contextlib.suppress(OSError):
        return entry.began > os.stat(os.path.join(directory, "lock")).st_mtime
    return True


def _entries() -> list[Entry]:
    home = _private_directory.check(_home())
    entries = []
    for name in sorted(os.listdir(home))[-ENTRIES_MAX:]:
        path = os.path.join(home, name)
        try:
            began, pid = (int(part) for part in name.split("-"))
            with open(path, encoding="utf-8") as file:
                address, directory = file.read().splitlines()
        except (OSError, ValueError):
            continue
        if not os.path.exists(f"/proc/{pid}"):
            # Killed before it could tidy up.
            _private_directory.remove(path)
            continue
        entries.append(Entry(began / 1e9, pid, address, directory, path))
    return entries


def _home() -> str:
    """The directory of the files, beside that of the user's daemon."""
    from aktis._engine import native

    return f"{native.default_directory()}-programs"
