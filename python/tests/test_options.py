"""Options are checked where they are written, without a session (behaviour 3)."""

import os
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import _options, _runtime_env


def task() -> None:
    pass


class Plain:
    def method(self) -> None:
        pass


@pytest.fixture(autouse=True)
def without_session(no_session: None) -> Any:
    yield
    assert not aktis.is_initialized(), "checking options started a session"


WRONG_TYPES: list[dict[str, Any]] = [
    {"num_cpus": "1"},
    {"num_cpus": [1]},
    {"num_gpus": "1"},
    {"memory": "1G"},
    {"resources": 3},
    {"resources": {1: 1}},
    {"resources": {"disk": "much"}},
    {"name": 3},
    {"runtime_env": 3},
    {"runtime_env": {"env_vars": {"A": 1}}},
    {"runtime_env": {"env_vars": ["A"]}},
    {"scheduling_strategy": 3},
    {"placement_group_bundle_index": "0"},
    {"placement_group_capture_child_tasks": 1},
    {"label_selector": {"zone": 1}},
    {"accelerator_type": 3},
    {"priority": "high"},
]
WRONG_VALUES: list[dict[str, Any]] = [
    {"priority": 1 << 31},
    {"priority": -(1 << 31) - 1},
    {"num_cpus": -1},
    {"num_cpus": float("nan")},
    {"num_cpus": float("inf")},
    {"num_cpus": 0.00001},
    {"num_gpus": -0.5},
    {"memory": -1},
    {"resources": {"CPU": 1}},
    {"resources": {"GPU": 1}},
    {"resources": {"memory": 1}},
    {"resources": {"disk": -1}},
    {"resources": {"disk": 0.00009 / 2}},
    {"name": ""},
    {"scheduling_strategy": "NOWHERE"},
    {"runtime_env": {"bogus": 1}},
    {"runtime_env": {"working_dir": "/no/such/folder"}},
    {"placement_group_bundle_index": -2},
    {"bogus": 1},
]
WRONG_TYPES_OF_TASKS: list[dict[str, Any]] = [
    {"num_returns": 1.5},
    {"num_returns": True},
    {"max_retries": "3"},
    {"max_retries": 1.0},
    {"retry_exceptions": 1},
    {"retry_exceptions": [ValueError("an instance")]},
    {"retry_exceptions": ValueError},
    {"max_calls": "1"},
    {"deadline": "soon"},
]
WRONG_VALUES_OF_TASKS: list[dict[str, Any]] = [
    {"num_returns": -1},
    {"num_returns": "many"},
    {"num_returns": _options.RETURNS_MAX + 1},
    {"max_retries": -2},
    {"max_calls": -1},
    {"deadline": 0},
    {"max_restarts": 1},
    {"_generator_backpressure_num_objects": 0},
]
WRONG_TYPES_OF_ACTORS: list[dict[str, Any]] = [
    {"max_restarts": "1"},
    {"max_task_retries": 1.5},
    {"max_concurrency": "2"},
    {"concurrency_groups": ["io"]},
    {"concurrency_groups": {"io": "2"}},
    {"namespace": 3},
    {"lifetime": 3},
    {"get_if_exists": "yes"},
    {"checkpoint": "often"},
]
WRONG_VALUES_OF_ACTORS: list[dict[str, Any]] = [
    {"max_restarts": -2},
    {"max_task_retries": -2},
    {"max_concurrency": 0},
    {"max_pending_calls": 0},
    {"concurrency_groups": {"io": 0}},
    {"namespace": ""},
    {"lifetime": "for ever"},
    {"get_if_exists": True},
    {"num_returns": 2},
    {"max_retries": 2},
]


@pytest.mark.parametrize("options", WRONG_TYPES + WRONG_TYPES_OF_TASKS, ids=repr)
def test_wrong_types_for_tasks(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        aktis.remote(**options)(task)
    with pytest.raises(TypeError):
        aktis.remote(task).options(**options)


@pytest.mark.parametrize("options", WRONG_VALUES + WRONG_VALUES_OF_TASKS, ids=repr)
def test_wrong_values_for_tasks(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        aktis.remote(**options)(task)
    with pytest.raises(ValueError):
        aktis.remote(task).options(**options)


@pytest.mark.parametrize("options", WRONG_TYPES + WRONG_TYPES_OF_ACTORS, ids=repr)
def test_wrong_types_for_actors(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        aktis.remote(**options)(Plain)
    with pytest.raises(TypeError):
        aktis.remote(Plain).options(**options)


@pytest.mark.parametrize("options", WRONG_VALUES + WRONG_VALUES_OF_ACTORS, ids=repr)
def test_wrong_values_for_actors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        aktis.remote(**options)(Plain)
    with pytest.raises(ValueError):
        aktis.remote(Plain).options(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_cpus": 0},
        {"num_cpus": 0.5},
        {"num_cpus": 0.0001},
        {"num_cpus": True},
        {"num_gpus": 2.0},
        {"num_gpus": 0.25},
        {"memory": 1 << 30},
        {"resources": {"disk": 1 / 3}},
        {"scheduling_strategy": "SPREAD"},
        {"runtime_env": {"env_vars": {"A": "1"}}},
        {"label_selector": {"zone": "!in(a, b)"}},
        {"priority": -3},
        {"name": None},
    ],
    ids=repr,
)
def test_good_values(options: dict[str, Any]) -> None:
    aktis.remote(**options)(task)
    aktis.remote(Plain).options(**options)


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="max_retries"):
        aktis.remote(task).options(retries=3)
    with pytest.raises(ValueError, match="max_restarts"):
        aktis.remote(Plain).options(restarts=3)
    with pytest.raises(ValueError, match="concurrency_group"):
        aktis.method(group="io")


def test_defaults() -> None:
    assert _options.resources({}, 1.0) == {"CPU": 1.0}
    assert _options.resources({"num_cpus": 0.0, "num_gpus": 0.5}, 1.0) == {"GPU": 0.5}
    assert _options.return_number({}, is_generator=False) == 1
    assert _options.return_number({}, is_generator=True) == _options.STREAMING
    assert _options.return_number({"num_returns": 3}, is_generator=True) == 3
    assert _options.retries({}) is False
    assert _options.MAX_RETRIES_DEFAULT == 3


def test_resources_have_four_decimals() -> None:
    checked = _options.check({"num_cpus": 1 / 3, "resources": {"disk": 0.12346}}, _options.TASK, "tasks")
    assert checked == {"num_cpus": 0.3333, "resources": {"disk": 0.1235}}


def test_none_puts_the_default_back() -> None:
    base = _options.merge({}, {"num_cpus": 2, "max_retries": 1}, _options.TASK, "tasks")
    assert _options.merge(base, {"num_cpus": None}, _options.TASK, "tasks") == {"max_retries": 1}


def test_options_do_not_change_the_original() -> None:
    function = aktis.remote(num_cpus=2)(task)
    other = function.options(num_cpus=3)
    assert function._options == {"num_cpus": 2.0}
    assert other._options == {"num_cpus": 3.0}
    assert other.options(max_retries=0)._options == {"num_cpus": 3.0, "max_retries": 0}


def test_methods_have_options_of_their_own() -> None:
    for options in ({"num_returns": "x"}, {"num_returns": -1}, {"max_task_retries": -2}):
        with pytest.raises(ValueError):
            aktis.method(**options)
    for options in ({"num_returns": None, "read_only": 1}, {"concurrency_group": 3}, {"retry_exceptions": 3}):
        with pytest.raises(TypeError):
            aktis.method(**options)
    assert aktis.method(task) is task
    with pytest.raises(TypeError, match="keyword"):
        aktis.method(3)
    with pytest.raises(TypeError):
        aktis.method()


def test_a_concurrency_group_must_exist() -> None:
    class Grouped:
        @aktis.method(concurrency_group="io")
        async def method(self) -> None:
            pass

    with pytest.raises(ValueError, match="io"):
        aktis.remote(concurrency_groups={"compute": 1})(Grouped)
    aktis.remote(concurrency_groups={"io": 2})(Grouped)
    with pytest.raises(ValueError, match="io"):
        aktis.remote(Grouped).remote()


def test_what_can_be_remote() -> None:
    for wrong in (3, "f", None, Plain(), [task]):
        with pytest.raises(TypeError):
            aktis.remote(wrong)
    with pytest.raises(TypeError, match="already"):
        aktis.remote(aktis.remote(task))
    with pytest.raises(TypeError):
        aktis.remote(task, num_cpus=1)

    async def coroutine() -> None:
        pass

    with pytest.raises(ValueError, match="asyncio"):
        aktis.remote(coroutine)
    with pytest.raises(TypeError, match="nothing"):
        aktis.remote()


def test_direct_calls_are_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match=r"task\.remote"):
        aktis.remote(task)()
    with pytest.raises(TypeError, match=r"Plain\.remote"):
        aktis.remote(Plain)()
    assert aktis.remote(task).__wrapped__ is task
    assert aktis.remote(task).__doc__ == task.__doc__
    assert aktis.remote(task).__name__ == "task"


def test_actor_classes_cannot_be_bases() -> None:
    base = aktis.remote(Plain)
    with pytest.raises(TypeError, match="inherit"):

        class Derived(base):  # type: ignore[misc, valid-type]
            pass


# --- runtime environments -------------------------------------------------------------------------


def test_environment_text_is_the_same_for_the_same_environment() -> None:
    one = _runtime_env.text({"env_vars": {"A": "1", "B": "2"}}, None)
    other = _runtime_env.text({"env_vars": {"B": "2", "A": "1"}}, 1.0)
    assert one == other != ""
    assert _runtime_env.text(None, None) == ""
    assert _runtime_env.text({}, 1.0) == ""
    assert _runtime_env.text({}, 0.5) == ""
    assert _runtime_env.text({}, 4.0) == '{"omp_num_threads":4}'


def test_environment_text_follows_the_files_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("X = 1\n")
    plain = _runtime_env.validate({"working_dir": str(tmp_path)})
    before = _runtime_env.text(plain, None)
    assert _runtime_env.text(plain, None) == before
    (tmp_path / "module.py").write_text("X = 22\n")
    os.utime(tmp_path / "module.py", ns=(1, 1))
    assert _runtime_env.text(plain, None) != before


def test_modules_become_paths(tmp_path: Path) -> None:
    import json

    found = _runtime_env.validate({"py_modules": [json, str(tmp_path)]})
    assert found == {"py_modules": [os.path.dirname(json.__file__), str(tmp_path)]}
    with pytest.raises(ValueError, match="exist"):
        _runtime_env.validate({"py_modules": [str(tmp_path / "missing")]})
    with pytest.raises(TypeError):
        _runtime_env.validate({"py_modules": str(tmp_path)})


def test_packages_in_their_plain_form(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "# what is needed\n\none==1  # why\n--index-url https://x/#simple\n"
    )
    lines = ["one==1", "--index-url https://x/#simple"]
    for written, plain in (
        (["one", "two>=2"], {"lines": ["one", "two>=2"]}),
        (str(tmp_path / "requirements.txt"), {"lines": lines}),
        (
            {"packages": ["one"], "pip_check": True, "pip_version": "==23"},
            {"lines": ["one"], "check": True, "version": "==23"},
        ),
        ({"packages": [], "pip_install_options": ["--pre"]}, {"lines": [], "options": ["--pre"]}),
    ):
        found = _runtime_env.validate({"pip": written})
        assert found == {"pip": {"tool": "pip", **plain}}
        assert _runtime_env.validate(found) == found
    for wrong, kind in (
        ({"pip": ["a"], "uv": ["b"]}, ValueError),
        ({"pip": 3}, TypeError),
        ({"pip": [3]}, TypeError),
        ({"uv": {"packages": ["a"], "unheard_of": 1}}, ValueError),
        ({"pip": str(tmp_path / "missing.txt")}, ValueError),
        ({"config": {"setup_timeout_seconds": 0}}, ValueError),
        ({"config": 3}, TypeError),
    ):
        with pytest.raises(kind):
            _runtime_env.validate(wrong)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"max_retries": 1.5}, TypeError, "The type of keyword 'max_retries' must be"),
        (
            {"num_returns": 1.5},
            TypeError,
            "<class 'str'>, <class 'NoneType'>), but received type <class 'float'>",
        ),
        ({"max_calls": -1}, ValueError, "The keyword 'max_calls' only accepts None, 0 or a positive integer"),
        (
            {"max_retries": -2},
            ValueError,
            "only accepts None, 0, -1 or a positive integer, where -1 represents",
        ),
        ({"num_returns": -1}, ValueError, "'streaming' (for generators), or 'dynamic'"),
        ({"num_gpus": 0.00001}, ValueError, "quantity of resource num_gpus cannot go beyond 0.0001"),
        ({"resources": {"x": 0.00001}}, ValueError, "quantity of resource x cannot go beyond 0.0001"),
    ],
)
def test_the_phrases_that_programs_match_on(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as raised:
        aktis.remote(**options)(task)
    assert text in str(raised.value)


@pytest.mark.parametrize("options", [{"num_gpus": 1.5}, {"resources": {"TPU": 2.5}}])
def test_fractions_of_accelerators_are_refused_at_the_call(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="whole number"):
        aktis.remote(**options)(task).remote()
    with pytest.raises(ValueError, match="whole number"):
        aktis.remote(**options)(Plain).remote()
    aktis.remote(resources={"other": 2.5}, num_cpus=1.5)(task)


def test_bytes_of_memory_are_whole(no_session: Any) -> None:
    aktis.init(num_cpus=1, _memory=2.2)
    function = aktis.remote(num_cpus=0)(task)
    for amount in (0.5, 2.0, 2.9):
        aktis.get(function.options(memory=amount).remote(), timeout=20)
    waiting = function.options(memory=3.1).remote()
    assert aktis.wait([waiting], timeout=0.1)[0] == []
    aktis.cancel(waiting)
    aktis.shutdown()
