"""Notebooks: cells that run one after another in IPython's shell, with readable representations."""

import ast
from pathlib import Path

import pytest

from support import run_program

pytest.importorskip("IPython")

PROGRAM = '''
import sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()

def cell(text):
    """Runs a cell; what a notebook would show of its last value."""
    result = shell.run_cell(text)
    result.raise_error()
    if result.result is None:
        return None
    shown, _ = shell.display_formatter.format(result.result)
    return shown["text/plain"]

def main():
    CELLS

main()
'''


def run_cells(body: str, folder: Path) -> str:
    program = folder / "notebook.py"
    program.write_text(PROGRAM.replace("CELLS", "\n    ".join(body.strip().splitlines())))
    environment = {"IPYTHONDIR": str(folder), "HOME": str(folder)}
    return run_program([str(program)], folder, environment=environment).stdout


def test_cells_share_a_session_and_a_redefinition_is_picked_up(tmp_path: Path) -> None:
    output = run_cells(
        r"""
cell("import aktis\ncontext = aktis.init(num_cpus=2)")
cell("@aktis.remote\ndef f(x):\n    return x + 1")
cell("ref = f.remote(1)")
assert cell("aktis.get(ref)") == "2"
cell("@aktis.remote\ndef f(x):\n    return x + 100")
assert cell("aktis.get(f.remote(1))") == "101"
cell("def helper(x):\n    return -x\n@aktis.remote\ndef g(x):\n    return helper(x)")
assert cell("aktis.get(g.remote(1))") == "-1"
cell("def helper(x):\n    return x * 7\n@aktis.remote\ndef g(x):\n    return helper(x)")
assert cell("aktis.get(g.remote(1))") == "7"
assert cell("await f.remote(2)") == "102"
cell("aktis.shutdown()")
cell("aktis.init(num_cpus=1)")
assert cell("aktis.get(f.remote(3))") == "103"
print("done")
""",
        tmp_path,
    )
    assert output.strip().endswith("done")


def test_values_have_readable_representations(tmp_path: Path) -> None:
    output = run_cells(
        r"""
cell("import aktis\ncontext = aktis.init(num_cpus=2)")
cell("@aktis.remote\ndef f(x):\n    return x")
cell("@aktis.remote\nclass Counter:\n    def add(self): return 1\n    def many(self):\n        yield 1")
cell("ref = aktis.put(1)\ncounter = Counter.remote()")
cell("stream = counter.many.options(num_returns='streaming').remote()")
names = ["context", "ref", "f", "Counter", "counter", "counter.add", "stream", "aktis.get_runtime_context()"]
shown = {name: cell(name) for name in names}
print(repr(shown))
""",
        tmp_path,
    )
    shown = ast.literal_eval(output.strip().splitlines()[-1])
    assert shown["ref"].startswith("ObjectRef(") and shown["ref"].endswith(")")
    assert shown["counter"].startswith("Actor(") and "Counter" in shown["counter"]
    assert "Counter" in shown["Counter"] and "add" in shown["counter.add"]
    assert "f" in shown["f"]
    assert "ObjectRefGenerator" in shown["stream"]
    for name, text in shown.items():
        assert " object at 0x" not in text, (name, text)
        assert len(text) < 400, (name, text)


def test_an_interrupt_ends_the_cell_and_nothing_else(tmp_path: Path) -> None:
    output = run_cells(
        r"""
cell("import aktis, os, signal, threading, time\naktis.init(num_cpus=2)")
cell("@aktis.remote\ndef slow():\n    time.sleep(60)")
cell("@aktis.remote\ndef quick():\n    return 'quick'")
cell("aktis.get(quick.remote())")
cell("ref = slow.remote()")
cell("threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()")
import time
started = time.monotonic()
try:
    cell("aktis.get(ref)")
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - started < 5)
print(cell("aktis.get(quick.remote())"))
cell("aktis.cancel(ref)")
""",
        tmp_path,
    )
    assert [line for line in output.splitlines() if line in ("interrupted True", "'quick'")] == [
        "interrupted True",
        "'quick'",
    ]


def test_a_traceback_shows_the_remote_frames(tmp_path: Path) -> None:
    output = run_cells(
        r"""
cell("import aktis\naktis.init(num_cpus=2)")
cell("@aktis.remote\ndef fail():\n    return 1 / 0")
result = shell.run_cell("aktis.get(fail.remote())")
print(type(result.error_in_exec).__mro__)
""",
        tmp_path,
    )
    # A worker has not the text of a cell; the line's number it has.
    assert "line 3, in fail" in output and "ZeroDivisionError: division by zero" in output
