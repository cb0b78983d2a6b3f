"""The command line: runs a program as `python` would, with `import ray` answered by Aktis."""

import os
import sys
from types import CodeType, ModuleType, TracebackType
from typing import NoReturn

import aktis.compat
from aktis.compat import _environment

_USAGE = """\
usage: python -m aktis.compat program.py [arguments]
       python -m aktis.compat -m module [arguments]
       python -m aktis.compat -c code [arguments]
       python -m aktis.compat - [arguments]        (the program is read from standard input)
       python -m aktis.compat --check program.py|folder ...

Runs a program that was written for Ray: `import ray` gives Aktis, in the program, in the Python
programs that it starts, and in every worker. With --check, programs are read and not run: it says which
names of Ray's they use that are missing or differ, with line numbers.
"""


def main() -> NoReturn:
    """Runs what `sys.argv` says, as the main program of this process."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    if arguments[0] in ("-V", "--version"):
        print(f"aktis {aktis.compat.AKTIS_VERSION}, in the place of ray {aktis.compat.RAY_VERSION}")
        sys.exit(0)
    how, rest = arguments[0], arguments[1:]
    if how == "--check":
        from aktis.compat import _check

        sys.exit(_check.main(rest))
    if how in ("-m", "-c") and not rest:
        sys.exit(f"aktis.compat: {how} needs an argument\nhint: python -m aktis.compat --help")
    if how.startswith("-") and how not in ("-m", "-c", "-"):
        sys.exit(f"aktis.compat: unknown option {how}\nhint: python -m aktis.compat --help")
    if how == "-m":
        _run_module(rest)
    elif how == "-c":
        _run_code(compile(rest[0], "<string>", "exec"), ["-c", *rest[1:]], None)
    elif how == "-":
        _run_code(compile(sys.stdin.read(), "<stdin>", "exec"), ["-", *rest], None)
    elif os.path.isfile(how) and not how.endswith((".pyz", ".zip")):
        _run_file(how, rest)
    else:
        _run_path(how, rest)
    sys.exit(0)


def _main_module(file: str | None) -> ModuleType:
    """An empty `__main__`, that stays for as long as the process lives."""
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    if file is not None:
        module.__file__ = file
    sys.modules["__main__"] = module
    return module


def _search_from(directory: str) -> None:
    """The path begins with the current directory, as `-m aktis.compat` left it, unless there was a `-P`."""
    if not sys.flags.safe_path:
        sys.path[0] = directory
    _environment.export()


def _run_file(program: str, arguments: list[str]) -> None:
    try:
        with open(program, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.exit(f"aktis.compat: cannot read {program}: {error.strerror}")
    _search_from(os.path.dirname(os.path.realpath(program)))
    try:
        code = compile(source, program, "exec")
    except SyntaxError as error:
        _show(error, None)
    _run_code(code, [program, *arguments], program)


def _run_code(code: CodeType, arguments: list[str], file: str | None) -> None:
    sys.argv[:] = arguments
    if file is None:
        _search_from("")
    module = _main_module(file)
    if file is not None:
        from importlib.machinery import SourceFileLoader

        module.__loader__ = SourceFileLoader("__main__", file)
        module.__dict__["__cached__"] = None
    try:
        exec(code, module.__dict__)
    except Exception as error:
        # Begin with the program's own frame: the ones above it are of no interest to its user.
        _show(error, error.__traceback__ and error.__traceback__.tb_next)


def _run_module(arguments: list[str]) -> None:
    import runpy

    sys.argv[:] = arguments
    _search_from(os.getcwd())
    _main_module(None)
    # What `python -m` itself calls. `run_module` would take the module away again at the end, while the
    # program's threads and exit handlers still run.
    runpy._run_module_as_main(arguments[0])  # type: ignore[attr-defined]


def _run_path(program: str, arguments: list[str]) -> None:
    """A directory or an archive with a `__main__.py`."""
    import runpy

    if not os.path.exists(program):
        sys.exit(f"aktis.compat: cannot find {program}\nhint: the current directory is {os.getcwd()}")
    sys.argv[:] = [program, *arguments]
    sys.path.insert(0, program)
    _environment.export()
    del sys.path[0]  # run_path puts it there itself
    runpy.run_path(program, run_name="__main__")


def _show(error: BaseException, traceback: TracebackType | None) -> NoReturn:
    """Ends the process as Python does after an exception that nobody caught."""
    error.__traceback__ = traceback
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
    sys.excepthook(type(error), error, traceback)
    sys.exit(1)
