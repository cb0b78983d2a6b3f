"""Where other programs find the nodes that running programs of this user have started.

Each such node has a file in a private directory: its name says when the node came and whose it is, its lines
say where it listens. A file whose process is gone counts for nothing, and goes when somebody looks.
"""

import contextlib
import os
import stat
import time
from typing import NamedTuple

ENTRIES_MAX = 4096
"""So many files are looked at."""

TRIES = 100
"""The directory goes with its last file, maybe just when somebody writes another: so often it is tried again."""


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
        for left in reversed(range(TRIES)):
            try:
                self._path = self._write(f"{address}\n{directory}\n")
                return
            except FileNotFoundError:
                if not left:
                    raise

    @staticmethod
    def _write(text: str) -> str:
        path = os.path.join(_make_home(), f"{time.time_ns()}-{os.getpid()}")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".new", path)
        return path

    def withdraw(self) -> None:
        """The node is gone. Does nothing the second time."""
        _remove(self._path)


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
    home = _home()
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
            _remove(path)
            continue
        entries.append(Entry(began / 1e9, pid, address, directory, path))
    return entries


def _remove(path: str) -> None:
    """Removes a file, and the directory with its last one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _home() -> str:
    """The directory of the files, beside that of the user's daemon; refused if others may write into it."""
    from aktis._engine import native

    path = f"{native.default_directory()}-programs"
    about = os.lstat(path)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(
            f"{path} is not a private directory of this user\nhint: remove it, or set AKTIS_DIRECTORY"
        )
    return path


def _make_home() -> str:
    from aktis._engine import native

    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{native.default_directory()}-programs", 0o700)
    return _home()
