"""Breakpoints in tasks and actors, under the name that users of Ray know.

    from aktis.util import rpdb

    @aktis.remote
    def task():
        rpdb.set_trace()  # the same as breakpoint()

`aktis debug` on the same machine connects to the task.
"""

import sys

__all__ = ["set_trace"]


def set_trace(breakpoint_uuid: str | bytes | None = None) -> None:
    """Waits at the next line until `aktis debug` has connected. In a driver it is pdb.

    `breakpoint_uuid` has no effect.
    """
    del breakpoint_uuid
    from aktis import _debugger
    from aktis._engine import context

    frame = sys._getframe(1)
    if context().is_worker:
        _debugger.set_trace(frame)
    else:
        import pdb

        pdb.Pdb().set_trace(frame)
