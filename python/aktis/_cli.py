"""The command `aktis`, which a wheel installs: `python -m aktis._cli` is the same."""

import sys

PARENT_SECONDS = 0.5


def main() -> int:
    """Does what the command line says; gives the exit code."""
    from aktis._engine import native

    return native.cli(["aktis", *sys.argv[1:]], [sys.executable, "-m", "aktis._cli"])


def end_with_parent() -> None:
    """Has this process end soon after the one that started it, however that ends."""
    import os
    import signal
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
