"""Folders that all sessions of the user share: each is made once, for every worker that wants the same.

1. A folder is complete if its mark is there, which is written last.
2. Who looks for one, and makes it or removes it, has its lock; who uses one shares another, until its process
   ends. Nobody waits for the second while somebody has the first.
3. Of each kind, a number stays; those that have not been used for longest go, unless they are in use.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable

MARK = "aktis-complete"


class Lock:
    """A lock on a file. Whoever removes the file has the lock, so who has waited for that looks again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1

    def take(self, how: int) -> bool:
        """Takes the lock; False if it is taken, and `how` says not to wait."""
        while True:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._file, how)
            except BlockingIOError:
                self.release()
                return False
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(self._file).st_ino == os.stat(self.path).st_ino:
                    return True
            self.release()

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


used: list[Lock] = []


def folder(kind: str) -> str:
    """Where folders of a kind are kept."""
    chosen = os.environ.get("AKTIS_CACHE_DIR")
    if not chosen:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        chosen = os.path.join(base, "aktis")
    return os.path.join(chosen, kind)


def ensure(kind: str, name: str, make: Callable[[str], None], most: int) -> str:
    """The folder of this kind and name, in use until this process ends. If there is none, `make` makes it."""
    root = folder(kind)
    os.makedirs(root, mode=0o700, exist_ok=True)
    place = os.path.join(root, name)
    mark = os.path.join(place, MARK)
    lock, use = _locks(place)
    lock.take(fcntl.LOCK_EX)
    try:
        is_new = not os.path.exists(mark)
        if is_new:
            _make(place, make)
        os.utime(mark)
        use.take(fcntl.LOCK_SH)
        used.append(use)
    finally:
        lock.release()
    if is_new:
        _remove_some(root, most)
    return place


def _make(place: str, make: Callable[[str], None]) -> None:
    import shutil

    shutil.rmtree(place, ignore_errors=True)
    try:
        make(place)
        with open(os.path.join(place, MARK), "w", encoding="utf-8"):
            pass
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _locks(place: str) -> tuple[Lock, Lock]:
    return Lock(place + ".lock"), Lock(place + ".used")


def _remove_some(root: str, most: int) -> None:
    """Removes the folders that have not been used for longest, if there are too many."""
    import shutil

    marks = []
    for name in os.listdir(root):
        with contextlib.suppress(OSError):
            marks.append((os.stat(os.path.join(root, name, MARK)).st_mtime, name))
    for _, name in sorted(marks)[: max(len(marks) - most, 0)]:
        place = os.path.join(root, name)
        lock, use = _locks(place)
        if lock.take(fcntl.LOCK_EX | fcntl.LOCK_NB):
            if use.take(fcntl.LOCK_EX | fcntl.LOCK_NB):
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(place, MARK))
                shutil.rmtree(place, ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.remove(use.path)
                    os.remove(lock.path)
            use.release()
            lock.release()
