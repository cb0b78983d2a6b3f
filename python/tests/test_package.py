"""The package as it is installed: what is in it, and how little `import aktis` brings along."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aktis
from aktis._engine import native

#: Each of these takes milliseconds to import, and a program that only submits tasks needs none of them.
HEAVY = ["asyncio", "concurrent.futures", "inspect", "json", "logging", "multiprocessing", "numpy", "socket"]


def run(program: str) -> str:
    return subprocess.check_output([sys.executable, "-c", program], text=True, timeout=30)


@pytest.mark.parametrize("module", [*HEAVY, "cloudpickle", "unittest"])
def test_importing_aktis_does_not_import(module):
    program = (
        f"import sys; before = set(sys.modules); import aktis; print({module!r} in set(sys.modules) - before)"
    )
    assert run(program) == "False\n"


def test_importing_aktis_starts_nothing():
    program = (
        "import os, threading, aktis; print(threading.active_count(), len(os.listdir('/proc/self/task')))"
    )
    assert run(program) == "1 1\n"


def test_the_package_is_typed():
    assert (Path(aktis.__file__).parent / "py.typed").exists()
    assert (Path(aktis.__file__).parent / "_native.pyi").exists()


@pytest.fixture
def installed():
    try:
        return importlib.metadata.distribution("aktis")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is used in place, without having been installed")


def test_the_version_is_the_engines(installed):
    assert installed.version == aktis.__version__


def test_the_only_dependency_is_cloudpickle(installed):
    required = [name for name in installed.requires if "extra ==" not in name]
    assert [name.split(">")[0].split(";")[0].strip() for name in required] == ["cloudpickle"]


def test_every_public_name_is_there():
    assert len(aktis.__all__) == len(set(aktis.__all__))
    for name in aktis.__all__:
        assert getattr(aktis, name) is not None, name


def test_the_program_in_the_readme_runs(run_script):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    run_script(program)


def stub_names() -> dict[str, set[str]]:
    """What the stub of the native module declares: in the module, and in each of its classes."""
    tree = ast.parse((Path(aktis.__file__).parent / "_native.pyi").read_text())

    def names(body):
        for item in body:
            if isinstance(item, ast.FunctionDef | ast.ClassDef):
                yield item.name
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                yield item.target.id

    classes = [item for item in tree.body if isinstance(item, ast.ClassDef)]
    return {"": set(names(tree.body)), **{item.name: set(names(item.body)) for item in classes}}


def public_names(something):
    return {name for name in dir(something) if not name.startswith("_")}


def test_the_stub_has_what_the_native_module_has():
    declared = stub_names()
    # Only the native part itself uses these.
    internal = {"Pinned", "load_actor", "load_ref"}
    assert public_names(native) - internal == declared.pop("")
    # These are added to the class in Python.
    added = {"as_future", "future", "job_id", "task_id"}
    for name, members in declared.items():
        plain = {member for member in members if not member.startswith("_")}
        inherited = set(dir(Exception)) if issubclass(getattr(native, name), Exception) else set()
        assert public_names(getattr(native, name)) - added - inherited == plain - added, name
