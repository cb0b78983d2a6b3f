"""`import ray` gives Aktis: what the import hook does, without a session.

The programs of these tests see an imitation of the package `aktis`, a few lines long, around the real
`aktis.compat`, so that they fail for no other reason than the hook.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[2] / "aktis" / "compat"

FILES = {
    "aktis/__init__.py": """
        __version__ = "0.0.7"
        def get(value): return value
        def __getattr__(name):
            if name == "lazy":
                return "lazily"
            raise AttributeError(name)
        """,
    "aktis/exceptions.py": "class TaskError(Exception): pass\nRayTaskError = TaskError\n",
    "aktis/util/__init__.py": "def tool(): return 'tool'\n",
    "aktis/util/queue.py": "print('queue is loaded')\nclass Queue: pass\n",
}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    shutil.copytree(COMPAT, tmp_path / "packages" / "aktis" / "compat")
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs `python ARGUMENTS` with the imitation on its path."""

    def run(
        *arguments: str, path: str = "", check: bool = True, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AKTIS_"))
        }
        environment |= variables
        environment["PYTHONPATH"] = os.pathsep.join(part for part in (path, str(folder / "packages")) if part)
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder / "work",
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture
def code(run: Run) -> Run:
    """Runs Python code after `import aktis.compat`."""

    def code(text: str, **options: object) -> subprocess.CompletedProcess[str]:
        return run("-c", "import aktis.compat\n" + textwrap.dedent(text), **options)

    return code


# --- the same modules -----------------------------------------------------------------------------


def test_modules_are_the_same_under_both_names(code: Run) -> None:
    done = code(
        """
        import sys
        import aktis, ray, ray.util.queue, ray.exceptions
        import ray.util.queue as queue
        from ray import exceptions
        from ray.util.queue import Queue
        import aktis.util.queue
        assert ray is aktis
        assert ray.util is aktis.util is sys.modules["ray.util"]
        assert ray.util.queue is aktis.util.queue is queue
        assert exceptions is aktis.exceptions is ray.exceptions
        assert exceptions.RayTaskError is aktis.exceptions.TaskError
        assert aktis.util.__name__ == "aktis.util" == aktis.util.__spec__.name
        """
    )
    assert done.stdout.count("queue is loaded") == 1


def test_a_module_that_aktis_imported_first_is_not_loaded_again(code: Run) -> None:
    done = code("import aktis.util.queue as a; import ray.util.queue as b; assert a is b")
    assert done.stdout.count("queue is loaded") == 1


def test_a_submodule_is_found_as_an_attribute(code: Run) -> None:
    done = code(
        """
        from ray.util import queue, tool
        import ray
        assert queue.Queue.__module__ == "aktis.util.queue" and tool() == "tool"
        """
    )
    assert done.stdout.count("queue is loaded") == 1
    code("import ray; assert ray.util.queue.Queue")


def test_what_aktis_makes_lazily_is_still_there(code: Run) -> None:
    code("import ray; assert ray.lazy == 'lazily'; from ray import lazy")


def test_pickled_references_agree(code: Run) -> None:
    code(
        """
        import pickle
        import ray.exceptions
        data = pickle.dumps(ray.exceptions.RayTaskError)
        assert b"aktis.exceptions" in data
        import aktis.exceptions
        assert pickle.loads(data) is aktis.exceptions.TaskError
        assert pickle.loads(b"cray.exceptions\\nRayTaskError\\n.") is aktis.exceptions.TaskError
        """
    )


def test_the_version_is_the_one_that_is_emulated(code: Run) -> None:
    code(
        """
        import importlib.metadata, importlib.util
        import ray
        assert ray.__version__ == aktis.compat.RAY_VERSION == "2.60.0"
        assert aktis.compat.AKTIS_VERSION == "0.0.7"
        assert importlib.metadata.version("ray") == "2.60.0"
        assert importlib.util.find_spec("ray") is not None
        """
    )


# --- not without being asked, and then always -----------------------------------------------------


@pytest.fixture
def installed(folder: Path) -> str:
    """A path with a package `ray` that is not ours."""
    package = folder / "installed" / "ray"
    (package / "util").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = 'installed'\n")
    (package / "util" / "__init__.py").write_text("")
    (package / "train.py").write_text("who = 'installed'\n")
    return str(folder / "installed")


def test_an_installed_ray_is_left_alone_without_compat(run: Run, installed: str) -> None:
    run(
        "-c",
        "import aktis, ray, ray.train; assert ray.__version__ == ray.train.who == 'installed'",
        path=installed,
    )
    assert run("-c", "import aktis, ray", check=False).stderr.strip().endswith("No module named 'ray'")


def test_an_installed_ray_is_passed_over_with_compat(code: Run, installed: str) -> None:
    text = "import ray, ray.train, ray.util; assert ray is aktis and ray.util is aktis.util; ray.train.who()"
    assert "NotSupported: ray.train.who " in code(text, path=installed, check=False).stderr
    code(
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import ray, aktis; assert ray is aktis"], check=True)
        """,
        path=installed,
    )


def test_a_ray_that_is_imported_already_is_not_replaced(run: Run, installed: str) -> None:
    done = run("-c", "import ray\nimport aktis.compat", path=installed, check=False)
    assert done.returncode == 1
    assert "ray is imported already" in done.stderr and "hint: import aktis.compat before" in done.stderr


@pytest.mark.parametrize("place", ["insert(0, F())", "append(F())"])
def test_other_finders_come_first(code: Run, place: str) -> None:
    code(
        f"""
        import sys
        from importlib.machinery import ModuleSpec
        class F:
            def find_spec(self, name, path=None, target=None):
                if name in ("ray.tests", "ray.tests.helper", "ray.util.queue", "ray.train"):
                    return ModuleSpec(name, self, is_package=True)
            def create_module(self, spec): return None
            def exec_module(self, module): module.mine = True
        sys.meta_path.{place}
        import ray.tests.helper, ray.util.queue, ray.data
        from ray import train
        assert ray.tests.helper.mine and ray.util.queue.mine and train.mine
        assert "not supported" in repr(ray.data)
        """
    )


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import ray; ray.something()", "ray.something"),
        ("import ray; ray.something.more", "ray.something.more"),
        ("from ray.util import something; something(1, a=2)", "ray.util.something"),
        ("from ray.util.queue import Other; Other()", "ray.util.queue.Other"),
        ("from ray.train import Trainer; Trainer()", "ray.train.Trainer"),
        ("import ray; ray.data.read_csv('x')", "ray.data.read_csv"),
        ("import ray.tune.schedulers.async_; ray.tune.schedulers.async_.X()", "ray.tune.schedulers.async_.X"),
        ("from ray import serve\n@serve.deployment(x=1)\nclass A: pass", "ray.serve.deployment"),
        ("from ray import serve\n@serve.deployment\nclass A: pass\nA.bind()", "ray.serve.deployment(A).bind"),
        ("from ray import serve\n@serve.deployment\ndef f(): pass\nf()", "ray.serve.deployment(f)"),
        ("from ray import serve\ndef f(): pass\nserve.run(f)", "ray.serve.run"),
        ("from ray import serve\nserve.run(lambda: 1)", "ray.serve.run"),
        ("from ray import serve\nfrom shutil import copy\nserve.run(copy)", "ray.serve.run"),
        ("from ray.rllib.env import Env\nclass A(Env): pass\nA()", "ray.rllib.env.Env"),
        (
            "from ray.rllib.env import Env\nclass P: pass\nclass A(P, Env):\n  def __init__(self): pass\nA()",
            "ray.rllib.env.Env",
        ),
        (
            "from ray.rllib.env import Env\nclass A(Env): pass\nclass B(A): pass\nB(1, a=2)",
            "ray.rllib.env.Env",
        ),
        ("from ray import x\nif x: pass", "ray.x"),
        ("from ray import x\nfor _ in x: pass", "ray.x"),
        ("from ray import x\nwith x: pass", "ray.x"),
        ("from ray import x\nx.y = 1", "ray.x.y"),
        (
            "from ray._private.worker import print_logs as w; w.core_worker",
            "ray._private.worker.print_logs",
        ),
        ("from ray.exceptions import OddError; raise OddError('x')", "ray.exceptions.OddError"),
    ],
)
def test_what_is_missing_is_named_when_it_is_used(code: Run, text: str, name: str) -> None:
    last = code(text, check=False).stderr.strip().splitlines()[-2:]
    assert last[0].startswith(f"aktis.compat._missing.NotSupported: {name}"), last
    assert last[1].startswith("hint: docs/coming-from-ray.md")


def test_what_is_missing_can_be_imported_and_passed_around(code: Run) -> None:
    code(
        """
        import copy, pickle
        from typing import Optional
        import ray, ray.workflow, ray.dag, ray.autoscaler.sdk, ray._private.test_utils
        from ray.data import Dataset
        from ray.exceptions import OddError
        def f(a: Dataset | None, b: "Dataset", c: Optional[Dataset] = None) -> None | Dataset: ...
        assert pickle.loads(pickle.dumps(Dataset)) == Dataset == copy.copy(Dataset)
        assert {Dataset: 1}[ray.data.Dataset] == 1
        assert not isinstance(1, Dataset) and not isinstance(1, (str, Dataset))
        assert not hasattr(Dataset, "x") and "ray.data.Dataset" in repr(Dataset)
        assert issubclass(aktis.compat.NotSupported, (NotImplementedError, AttributeError))
        try:
            1 / 0
        except OddError:
            raise AssertionError
        except ZeroDivisionError:
            pass
        """
    )


def test_what_is_missing_can_be_a_base_and_a_decorator(code: Run) -> None:
    code(
        """
        import abc, dataclasses, typing
        from ray.data import Dataset, Part
        from ray.rllib.env import Env, wrapped
        from ray.tune.error import OddError, OddWarning
        import warnings

        @wrapped
        @dataclasses.dataclass
        class A(Env, Part, abc.ABC, option=1):
            rows: Dataset[int] = Part
            @wrapped
            def method(self) -> "Env": ...
            @property
            @abc.abstractmethod
            def other(self): ...

        class B(Env[Dataset], typing.Generic[typing.TypeVar("T")]): "text"
        class C(B[int]):
            def f(self): return 1
        class OwnError(OddError): pass

        def inner():
            @wrapped
            def same(x): return x
            return same

        assert "ray.rllib.env.wrapped(same)" in repr(inner())
        assert issubclass(C, Env) and issubclass(C, B)
        assert not issubclass(C, Part) and not issubclass(int, Env)
        assert not isinstance(1, B) and B.__doc__ == "text" and C.f(None) == 1
        assert [base.__name__ for base in B.__mro__[:2]] == ["B", "Env"]
        assert issubclass(OwnError, Exception)
        warnings.simplefilter("ignore", category=OddWarning)
        """
    )


def test_special_names_are_not_answered_for(code: Run) -> None:
    code(
        """
        import ray, ray.train, ray.util
        for module in (ray, ray.train, ray.util):
            for name in ("__wrapped__", "_repr_html_", "_ipython_display_", "pytest_plugins", "__all__"):
                assert not hasattr(module, name), (module, name)
        """
    )


# --- subprocesses ---------------------------------------------------------------------------------


def test_subprocesses_see_it_too(code: Run) -> None:
    done = code(
        """
        import subprocess, sys
        grandchild = "import ray.util.queue, aktis; assert ray is aktis; print('grandchild')"
        child = f"import sys, subprocess; subprocess.run([sys.executable, '-c', {grandchild!r}], check=True)"
        subprocess.run([sys.executable, "-c", child], check=True)
        """
    )
    assert "grandchild" in done.stdout


def test_a_subprocess_that_does_not_use_ray_does_not_load_aktis(code: Run) -> None:
    code(
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import sys; assert 'aktis' not in sys.modules"], check=True)
        """
    )


def test_what_was_added_to_the_path_reaches_subprocesses(code: Run, folder: Path) -> None:
    for name in ("first", "second"):
        (folder / name).mkdir()
        (folder / name / f"{name}.py").write_text("")
    code(
        """
        import subprocess, sys
        sys.path.insert(0, "../second")
        import ray.util
        subprocess.run([sys.executable, "-c", "import ray, first, second"], check=True, cwd="/")
        """,
        path=str(folder / "first"),
    )


def test_another_sitecustomize_runs_as_well(code: Run, folder: Path) -> None:
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("import sys\nsys.customized = __name__\n")
    code(
        """
        import subprocess, sys
        check = "import sys, ray, aktis; assert sys.customized == 'sitecustomize' and ray is aktis"
        subprocess.run([sys.executable, "-c", check], check=True)
        """,
        path=str(folder / "site"),
    )


def test_multiprocessing_sees_it_too(run: Run, folder: Path) -> None:
    (folder / "work" / "program.py").write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import ray.util.queue

            def child(kind):
                assert kind is ray.util.queue.Queue
                print("child", flush=True)

            if __name__ == "__main__":
                spawn = multiprocessing.get_context("spawn")
                process = spawn.Process(target=child, args=(ray.util.queue.Queue,))
                process.start()
                process.join()
                raise SystemExit(process.exitcode)
            """
        )
    )
    assert "child" in run("-m", "aktis.compat", "program.py").stdout


# --- variables ------------------------------------------------------------------------------------


def test_variables_of_rays_are_taken_over(code: Run) -> None:
    code(
        """
        import os
        from aktis.compat._environment import system_config
        assert os.environ["AKTIS_COMPAT"] == "1"
        assert os.environ["AKTIS_ADDRESS"] == "127.0.0.1:1" and os.environ["AKTIS_NAMESPACE"] == "own"
        assert system_config() == {"some_ms": 100, "x_enabled": True, "ratio": 0.5, "other": "text"}
        """,
        RAY_ADDRESS="127.0.0.1:1",
        RAY_NAMESPACE="theirs",
        AKTIS_NAMESPACE="own",
        RAY_some_ms="100",
        RAY_x_enabled="true",
        RAY_ratio="0.5",
        RAY_other="text",
        RAY_SOMETHING_ELSE="1",
    )


# --- the command ----------------------------------------------------------------------------------

PROGRAM = """
import os, sys
import aktis, helper
assert "ray" in sys.modules and __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
import ray
assert ray is aktis
print(os.path.basename(__file__), *sys.argv[1:])
if sys.argv[1:] == ["fail"]:
    def fail(): raise ValueError("oh")
    fail()
if sys.argv[1:] == ["exit"]:
    sys.exit(7)
"""


@pytest.fixture
def program(folder: Path) -> str:
    (folder / "work" / "sub").mkdir()
    (folder / "work" / "sub" / "helper.py").write_text("")
    (folder / "work" / "sub" / "program.py").write_text(PROGRAM)
    return os.path.join("sub", "program.py")


def test_the_command_runs_a_program(run: Run, program: str) -> None:
    assert run("-m", "aktis.compat", program, "a", "-b").stdout == "program.py a -b\n"
    assert run("-m", "aktis.compat", program, "exit", check=False).returncode == 7


def test_the_command_shows_the_programs_frames_alone(run: Run, program: str) -> None:
    done = run("-m", "aktis.compat", program, "fail", check=False)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert (
        lines[0].startswith("Traceback") and 'program.py", line' in lines[1] and lines[-1] == "ValueError: oh"
    )
    assert "compat" not in done.stderr
    done = run("-m", "aktis.compat", "-c", "1 +", check=False)
    assert done.returncode == 1 and "SyntaxError" in done.stderr


def test_the_command_runs_a_module(run: Run, program: str) -> None:
    done = run("-m", "aktis.compat", "-m", "sub.program", "a", check=False, path="sub")
    assert done.stdout == "program.py a\n", done.stderr
    done = run("-m", "aktis.compat", "-m", "nowhere", check=False)
    assert done.returncode == 1 and "No module named nowhere" in done.stderr


def test_the_command_runs_code_and_standard_input(run: Run) -> None:
    text = "import sys, ray, aktis; print(sys.argv, ray is aktis, __name__)"
    assert run("-m", "aktis.compat", "-c", text, "a").stdout == "['-c', 'a'] True __main__\n"
    assert run("-m", "aktis.compat", "-", "a", stdin=text).stdout == "['-', 'a'] True __main__\n"


def test_the_command_runs_a_directory(run: Run, folder: Path) -> None:
    (folder / "work" / "app").mkdir()
    (folder / "work" / "app" / "__main__.py").write_text("import ray, part, sys; print(__name__, sys.argv)\n")
    (folder / "work" / "app" / "part.py").write_text("")
    assert run("-m", "aktis.compat", "app", "x").stdout == "__main__ ['app', 'x']\n"


def test_the_command_explains_itself(run: Run) -> None:
    assert run("-m", "aktis.compat", "--help").stdout.startswith("usage: python -m aktis.compat")
    assert run("-m", "aktis.compat", "--version").stdout == "aktis 0.0.7, in the place of ray 2.60.0\n"
    for arguments, message in (
        ([], "usage:"),
        (["-m"], "-m needs an argument"),
        (["--odd"], "unknown option --odd"),
        (["no.py"], "cannot find no.py"),
    ):
        done = run("-m", "aktis.compat", *arguments, check=False)
        assert done.returncode != 0 and message in done.stderr, done.stderr
