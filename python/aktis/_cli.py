"""The command `aktis`, which a wheel installs: `python -m aktis._cli` is the same."""

import os
import sys


def command() -> list[str]:
    """How to start this command once more, with this very package, wherever the program found it."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = f"import sys; sys.path.insert(0, {home!r}); from aktis import _cli; sys.exit(_cli.main())"
    return [sys.executable, "-c", program]


def main() -> int:
    """Does what the command line says; gives the exit code."""
    from aktis._engine import native

    return native.cli(["aktis", *sys.argv[1:]], command())


if __name__ == "__main__":
    sys.exit(main())
