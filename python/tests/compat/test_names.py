"""The table of Ray's public names, its page, and the check of programs."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support import run_program

Run = Callable[..., CompletedProcess[str]]
ROOT = Path(__file__).parents[3]

# `import aktis.compat` changes the process that does so: it is done in one of its own.
COMPARE = """
import importlib
import aktis.compat
from aktis.compat import _missing, _table

for module, names in _table.names().items():
    loaded = importlib.import_module(module)
    for name in names:
        value = getattr(loaded, name, None)
        stand_in = isinstance(value, (_missing.Missing, _missing.Placeholder))
        stand_in = stand_in or "never raised." in (getattr(value, "__doc__", None) or "")
        missing = value is None or stand_in
        if missing != (_table.note_of(f"{module}.{name}")[0] == "missing"):
            print(f"{module}.{name} is {'missing' if missing else 'there'}")
"""


def test_the_table_of_names_is_true(tmp_path: Path) -> None:
    assert run_program(["-c", COMPARE], tmp_path).stdout == ""


def test_the_page_of_names_is_up_to_date(tmp_path: Path) -> None:
    made = run_program(["-m", "aktis.compat._table"], tmp_path).stdout
    assert made == (ROOT / "docs" / "ray-names.md").read_text()


PROGRAM = """\
import numpy as np
import ray
from ray import serve
from ray.util.queue import Queue as Mailbox
import ray.util.spark as spark
from ray._private.services import get_node_ip_address

ray.init()
np.ray.nothing()
print(ray.java_function("a", "b"), ray.get, ray.util.ActorPool, ray.util.state.list_logs)
spark.setup_ray_cluster(3)
serve.run(Mailbox())
"""


def test_a_program_is_checked_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_program(["-m", "aktis.compat", "--check", "program.py"], tmp_path, check=False)
    lines = [line.split(":", 2)[1:] for line in done.stdout.splitlines()[:-1]]
    found = [(int(number), text.split()[0], text.split()[1]) for number, text in lines]
    assert found == [
        (3, "ray.serve", "is"),
        (4, "ray.util.queue.Queue", "differs:"),
        (5, "ray.util.spark", "is"),
        (8, "ray.init", "differs:"),
        (10, "ray.java_function", "is"),
        (10, "ray.util.state.list_logs", "is"),
        (11, "ray.util.spark", "is"),
        (12, "ray.serve", "is"),
    ]
    assert done.stdout.splitlines()[-1] == "6 names are missing, 2 differ"
    assert done.returncode == 1


def test_folders_are_checked_and_mistakes_are_told(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "fine.py").write_text("import ray\nray.get(ray.put(1))\n")
    done = run_program(["-m", "aktis.compat", "--check", "."], tmp_path)
    assert done.stdout == "0 names are missing, 0 differ\n"
    (tmp_path / "inner" / "broken.py").write_text("import ray (")
    done = run_program(["-m", "aktis.compat", "--check", "."], tmp_path, check=False)
    assert (done.returncode, "cannot read" in done.stderr) == (2, True)
    done = run_program(["-m", "aktis.compat", "--check"], tmp_path, check=False)
    assert (done.returncode, "needs a program" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "expression",
    [
        "ray._private.services.get_node_ip_address().count('.') == 3",
        "'objects' in ray._private.internal_api.memory_summary()",
        "ray._private.worker.global_worker.mode == ray.SCRIPT_MODE",
        "ray._private.worker.global_worker.connected",
        "ray._private.worker.global_worker.node.unique_id == ray.nodes()[0]['NodeID']",
        "ray._private.state.state.node_table()[0]['Alive']",
        "ray._private.utils.hex_to_binary('00') == bytes(1)",
        "ray.dag.input_node.InputNode is ray.dag.InputNode",
        "ray.experimental.state.api.list_tasks() == []",
        "ray.logger.name == 'ray'",
    ],
)
def test_private_names_that_libraries_use(tmp_path: Path, expression: str) -> None:
    modules = "ray._private.services, ray._private.internal_api, ray._private.worker, ray._private.state"
    more = "ray._private.utils, ray.dag.input_node, ray.experimental.state.api"
    text = f"import ray, {modules}, {more}; ray.init(num_cpus=1); print({expression})"
    assert run_program(["-m", "aktis.compat", "-c", text], tmp_path).stdout == "True\n"


@pytest.mark.parametrize(
    "text", ["from ray.tune import is_session_enabled", "import ray.tune.is_session_enabled"]
)
def test_names_of_older_versions_fail_to_import_as_with_ray(tmp_path: Path, text: str) -> None:
    program = f"try:\n    {text}\nexcept ImportError:\n    print('absent')"
    assert run_program(["-m", "aktis.compat", "-c", program], tmp_path).stdout == "absent\n"


def test_a_function_is_not_hidden_by_its_module(tmp_path: Path) -> None:
    program = (
        "from ray.util.placement_group import placement_group\n"
        "import ray, ray.util.placement_group as found\n"
        "print(found is placement_group is ray.util.placement_group, callable(placement_group))"
    )
    assert run_program(["-m", "aktis.compat", "-c", program], tmp_path).stdout == "True True\n"


LOOKS_FIRST = """
import importlib.metadata, importlib.util
import ray

def look():
    spec = importlib.util.find_spec("ray")
    inner = importlib.util.find_spec("ray.util.queue")
    found = importlib.metadata.distribution("ray")
    version = importlib.metadata.version("ray")
    return spec is not None, inner is not None, version, found.metadata["Name"]

print(look(), ray.get(ray.remote(look).remote()))
"""


def test_libraries_that_look_before_they_import_find_ray(tmp_path: Path) -> None:
    seen = "(True, True, '2.60.0', 'ray')"
    assert run_program(["-m", "aktis.compat", "-c", LOOKS_FIRST], tmp_path).stdout == f"{seen} {seen}\n"
