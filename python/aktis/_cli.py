"""The command `aktis`, which a wheel installs: `python -m aktis._cli` is the same."""

import os
import signal
import sys

PARENT_SECONDS = 0.5


def command(before: str = "") -> list[str]:
    """How to start this command once more, with this very package, wherever the program found it; `before`
    is a statement that comes first."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    lines = [
        f"import sys; sys.path.insert(0, {home!r})",
        "from aktis import _cli",
        before,
        "sys.exit(_cli.main())",
    ]
    return [sys.executable, "-c", "; ".join(line for line in lines if line)]


def main() -> int:
    """Does what the command line says; gives the exit code."""
    from aktis._engine import native

    # Python's own handler would only take note of Ctrl-C, until the call below is over. Where a daemon runs
    # in this process, it has its own.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _look_at_programs()
    return native.cli(["aktis", *sys.argv[1:]], command())


def _look_at_programs() -> None:
    """Questions are about the node that the youngest running program has started, if no daemon is younger."""
    asks = sys.argv[1:2] and sys.argv[1] in ("explain", "list", "logs", "status")
    if not asks or "AKTIS_DIRECTORY" in os.environ:
        return
    from aktis import _running
    from aktis._engine import native

    found = _running.find("auto")
    if (
        found is not None
        and _running.is_younger(found, native.default_directory())
        and os.path.exists(os.path.join(found.directory, "node"))
    ):
        os.environ["AKTIS_DIRECTORY"] = found.directory


def end_with_parent() -> None:
    """Has this process end soon after the one that started it, however that ends."""
    import threading
    import time

    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="aktis-parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
