"""What workers print: on its way out of a worker, and on its way into the driver's streams.

A worker's streams mark what goes through them with the name of what is running, so that the driver can say
who printed a line. The marks are made when something is written, and cost nothing otherwise.
"""

import io
import os
import sys
from typing import Any, TextIO


class MarkedFile(io.FileIO):
    """The descriptor of a worker's stream."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.name = name

    def write(self, data: Any, /) -> int:
        """Writes all of it, in one go as far as the pipe has room: others may write to it too."""
        from aktis._engine import native

        before, after = native.output_mark()
        marked = memoryview(b"".join((before, data, after)))
        while marked:
            written = super().write(marked)
            if written is None:  # Somebody has made it non-blocking.
                import select

                select.select([], [self], [])
            else:
                marked = marked[written:]
        return memoryview(data).nbytes


def mark_streams() -> None:
    """Replaces this process's streams; called before anybody can have kept the old ones."""
    sys.stdout = sys.__stdout__ = _marked(sys.stdout, "<stdout>", 1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _marked(sys.stderr, "<stderr>", 2)  # type: ignore[misc]


def _marked(stream: TextIO, name: str, descriptor: int) -> io.TextIOWrapper:
    stream.flush()
    # What a task prints is to be seen while it runs: line by line.
    return io.TextIOWrapper(
        io.BufferedWriter(MarkedFile(descriptor, name)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


# --- the driver's side ------------------------------------------------------------------------


def write(is_error: bool, lines: list[str]) -> None:
    """Writes lines of workers to the stream of this process as it is now: notebooks and tests replace it."""
    text = "".join(lines)
    stream = sys.stderr if is_error else sys.stdout
    try:
        bars = sys.modules.get("aktis.util._bars")
        if bars is not None:
            bars.print_above(text, stream)
        else:
            stream.write(text)
            stream.flush()
    except Exception:  # There is none, or it is closed, or one of the user's own that does not want it.
        _write_directly(2 if is_error else 1, text)


def _write_directly(descriptor: int, text: str) -> None:
    data = memoryview(text.encode(errors="replace"))
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        pass  # Nobody is there to read it.
