"""The command `aktis`, which a wheel installs: `python -m aktis._cli` is the same."""

import sys


def main() -> int:
    """Does what the command line says; gives the exit code."""
    from aktis._engine import native

    return native.cli(["aktis", *sys.argv[1:]], [sys.executable, "-m", "aktis._cli"])


if __name__ == "__main__":
    sys.exit(main())
