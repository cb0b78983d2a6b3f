"""Breakpoints in tasks and actors: pdb over a socket, to which `aktis debug` connects.

A worker that reaches `breakpoint()` listens on a socket in a private directory of its user. A file beside
the socket says which task waits, and where. The worker removes both when the debugger has connected, or when
the task is cancelled; `aktis debug` removes those of a process that was killed.
"""

import contextlib
import json
import os
import pdb
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any

from aktis import _private_directory

DESCRIPTION = ".json"
SOCKET = ".socket"
_SUSPENDING = 0x20 | 0x80 | 0x200
"""Flags of the code of generators and coroutines, whose return events may be a `yield` or an `await`."""


def home() -> str:
    """The directory of the files. Its path depends on no variable: those of daemons and shells differ."""
    return f"/tmp/aktis-{os.geteuid()}-breakpoints"


def set_trace(frame: FrameType) -> None:
    """Waits at a line of a task until `aktis debug` has connected to it."""
    with _Place(frame) as place:
        connection = place.wait()
    _SocketPdb(connection, frame).set_trace(frame)


class _Place:
    """Where a task waits for a debugger."""

    def __init__(self, frame: FrameType) -> None:
        from aktis import get_runtime_context

        context = get_runtime_context()
        self._where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._what = context.get_task_function_name() or frame.f_code.co_name
        self._task = context.get_task_id()
        self._path = os.path.join(home(), f"{time.time_ns()}-{os.getpid()}-{threading.get_native_id()}")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> "_Place":
        try:
            _private_directory.write(self._path + SOCKET, self._listener.bind)
            self._listener.listen(1)
            about = {"pid": os.getpid(), "task": self._task, "name": self._what, "place": self._where}
            with open(self._path + ".new", "w", encoding="utf-8") as file:
                json.dump(about, file)
            os.rename(self._path + ".new", self._path + DESCRIPTION)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for ending in (".new", DESCRIPTION, SOCKET):
            _private_directory.remove(self._path + ending)

    def wait(self) -> socket.socket:
        """The connection of a debugger."""
        print(
            f"{self._what} waits at a breakpoint, {self._where}\n"
            f"hint: `aktis debug {os.getpid()}` on this machine goes on from there",
            file=sys.stderr,
            flush=True,
        )
        connection, _ = self._listener.accept()
        return connection


class _SocketPdb(pdb.Pdb):
    """pdb over a connection, which ends when nothing is left to debug. The task outlives the other end."""

    def __init__(self, connection: socket.socket, frame: FrameType) -> None:
        self._connection = connection
        # Two streams: writing to a stream discards what it has read ahead.
        commands = connection.makefile("r", encoding="utf-8", errors="replace")
        answers = connection.makefile("w", encoding="utf-8", errors="replace")
        self._streams = (commands, answers)
        self._task_frame = _task_frame(frame)
        super().__init__(stdin=commands, stdout=answers, nosigint=True, readrc=False)
        self.prompt = "(aktis) "

    def set_continue(self) -> None:
        super().set_continue()
        if not self.breaks:
            self._close()

    def set_quit(self) -> None:
        super().set_quit()
        self._close()

    def do_EOF(self, arg: str) -> bool:
        """The debugger has gone: the task goes on, as if there were no breakpoints."""
        self.clear_all_breaks()
        self.set_continue()
        return True

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        found = super().dispatch_return(frame, arg)
        if frame is self._task_frame and not frame.f_code.co_flags & _SUSPENDING:
            self.clear_all_breaks()
            self.set_continue()
        return found

    def _close(self) -> None:
        for stream in self._streams:
            with contextlib.suppress(OSError):  # The other end may have gone first.
                stream.close()
        self._connection.close()


def _task_frame(frame: FrameType) -> FrameType:
    """The frame of the function that the task calls: the frames below it belong to Aktis."""
    while frame.f_back is not None and not _is_ours(frame.f_back):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "aktis"
