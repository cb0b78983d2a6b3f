"""Private directories in which processes of one user find each other's files."""

import contextlib
import os
import stat
from collections.abc import Callable

TRIES = 100
"""Tries to write a file: the directory may go with its last file at the same moment."""


def write(path: str, make: Callable[[str], None]) -> None:
    """Makes a file with `make(path)`, and the directory around it unless that is there."""
    for left in reversed(range(TRIES)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(path), 0o700)
        try:
            check(os.path.dirname(path))
            return make(path)
        except FileNotFoundError:
            if not left:
                raise


def check(path: str) -> str:
    """Refuses a directory that others may read or write; gives its path."""
    about = os.lstat(path)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private directory of this user\nhint: remove it")
    return path


def remove(path: str) -> None:
    """Removes a file, and the directory with its last one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))
