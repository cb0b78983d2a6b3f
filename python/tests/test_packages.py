"""runtime_env's `pip` and `uv` (behaviour 29): environments are made once, shared, and removed.

The packages are wheels that the tests write; nothing is fetched.
"""

import fcntl
import importlib
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import _cache, _packages, exceptions

MODULE = "aktis_test_package"


def wheel(folder: Path, version: str) -> str:
    """A package with one module, whose VERSION says which it is."""
    path = folder / f"{MODULE}-{version}-py3-none-any.whl"
    info = f"{MODULE}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{MODULE}.py", f"VERSION = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return str(path)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_session: None) -> Path:
    monkeypatch.setenv("AKTIS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return tmp_path / "cache" / "environments"


def made(cache: Path) -> list[Path]:
    return sorted(path.parent for path in cache.glob(f"*/{_cache.MARK}"))


@aktis.remote
def version() -> tuple[str, str]:
    return importlib.import_module(MODULE).VERSION, os.environ["VIRTUAL_ENV"]


# --- tasks and actors -----------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_task_has_the_packages_that_it_asks_for(tool: str, tmp_path: Path, cache: Path) -> None:
    aktis.init(num_cpus=2)
    first, second = ({tool: [wheel(tmp_path, number)]} for number in ("1.0", "2.0"))
    refs = [version.options(runtime_env=first).remote() for _ in range(3)]
    other = version.options(runtime_env=second).remote()
    found = aktis.get(refs, timeout=60)
    assert {number for number, _ in found} == {"1.0"}
    assert aktis.get(other, timeout=60)[0] == "2.0"
    assert len(made(cache)) == 2 and {Path(place) for _, place in found} <= set(made(cache))
    with pytest.raises(ImportError):
        aktis.get(version.remote(), timeout=60)
    with pytest.raises(ImportError):
        importlib.import_module(MODULE)


def test_the_packages_of_a_job_reach_actors_children_and_what_they_start(tmp_path: Path, cache: Path) -> None:
    aktis.init(num_cpus=2, runtime_env={"pip": [wheel(tmp_path, "1.0")]})

    @aktis.remote
    class Actor:
        def version(self) -> Any:
            child = aktis.get(version.remote())[0]
            command = [sys.executable, "-c", f"import {MODULE}, cloudpickle; print({MODULE}.VERSION)"]
            started = subprocess.run(command, capture_output=True, text=True, check=True)
            return importlib.import_module(MODULE).VERSION, child, started.stdout.strip()

        def environment(self) -> Any:
            return aktis.get_runtime_context().runtime_env["pip"]["lines"]

    actor = Actor.remote()
    assert aktis.get(actor.version.remote(), timeout=60) == ("1.0", "1.0", "1.0")
    assert aktis.get(actor.environment.remote()) == [str(tmp_path / f"{MODULE}-1.0-py3-none-any.whl")]
    own = {"pip": [wheel(tmp_path, "2.0")]}
    assert aktis.get(version.options(runtime_env=own).remote(), timeout=60)[0] == "2.0"
    assert len(made(cache)) == 2


def test_what_is_installed_need_not_be_installed_again(cache: Path) -> None:
    aktis.init(num_cpus=1)

    @aktis.remote(runtime_env={"pip": ["cloudpickle>=1"]})
    def where() -> str:
        return str(importlib.import_module("cloudpickle").__file__)

    assert aktis.get(where.remote(), timeout=60) == importlib.import_module("cloudpickle").__file__
    assert len(made(cache)) == 1


def test_packages_that_do_not_exist_fail_the_task_with_what_pip_said(cache: Path) -> None:
    aktis.init(num_cpus=1)
    environment = {"pip": ["no-such-package-anywhere==1.0"]}
    refs = [version.options(runtime_env=environment).remote() for _ in range(3)]
    for ref in refs:
        told = r"(?s)no-such-package-anywhere.*pip said.*No matching"
        with pytest.raises(exceptions.RuntimeEnvSetupError, match=told):
            aktis.get(ref, timeout=60)

    @aktis.remote(runtime_env=environment)
    class Actor:
        def method(self) -> None:
            pass

    with pytest.raises(exceptions.ActorDiedError, match="no-such-package-anywhere"):
        aktis.get(Actor.remote().method.remote(), timeout=60)
    assert made(cache) == []


def test_a_worker_that_cannot_be_set_up_says_why() -> None:
    def hook() -> None:
        raise OSError("no such luck")

    aktis.init(num_cpus=1)
    ref = version.options(runtime_env={"worker_process_setup_hook": hook}).remote()
    with pytest.raises(exceptions.RuntimeEnvSetupError, match="no such luck"):
        aktis.get(ref, timeout=60)


# --- the cache ------------------------------------------------------------------------------------


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Environments that were made; without anything in them."""
    found: list[str] = []

    def build(wanted: _packages.Spec, place: str, deadline: float | None) -> None:
        assert not os.path.exists(place)
        os.makedirs(place)
        found.append(wanted["lines"][0])
        if wanted["lines"][0] == "broken":
            raise _packages.SetupError("it is broken")

    monkeypatch.setattr(_packages, "_build", build)
    monkeypatch.setattr(_cache, "used", [])
    return found


def spec(line: str) -> _packages.Spec:
    return _packages.spec("pip", [line])


def leave() -> None:
    """As if the processes that used environments had ended."""
    while _cache.used:
        _cache.used.pop().release()


def test_many_at_once_make_it_once(builds: list[str]) -> None:
    barrier = threading.Barrier(8)
    places = []

    def ensure() -> None:
        barrier.wait()
        places.append(_packages.ensure(spec("one")))

    threads = [threading.Thread(target=ensure) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (builds, len(places), len(set(places))) == (["one"], 8, 1)
    leave()


def test_who_waits_for_one_that_fails_fails_with_it(builds: list[str], cache: Path) -> None:
    cache.mkdir(parents=True)
    place = str(cache / _packages.identity(spec("broken")))
    lock = _cache.Lock(place + ".lock")
    lock.take(fcntl.LOCK_EX)
    failures: list[str] = []

    def ensure() -> None:
        with pytest.raises(_packages.SetupError, match="it is broken") as failure:
            _packages.ensure(spec("broken"))
        failures.append(str(failure.value))

    threads = [threading.Thread(target=ensure) for _ in range(3)]
    for thread in threads:
        thread.start()
    lock.release()
    for thread in threads:
        thread.join()
    assert (failures, builds) == (["it is broken"] * 3, ["broken"])
    # Who comes later tries again.
    with pytest.raises(_packages.SetupError):
        _packages.ensure(spec("broken"))
    assert builds == ["broken"] * 2


def test_one_that_was_left_unfinished_is_made_anew(builds: list[str], cache: Path) -> None:
    place = cache / _packages.identity(spec("one"))
    (place / "lib").mkdir(parents=True)
    assert _packages.ensure(spec("one")) == str(place)
    assert builds == ["one"] and not (place / "lib").exists()
    leave()


def test_those_that_were_not_used_for_longest_go(
    builds: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_packages, "ENVIRONMENTS_MAX", 2)
    places = {}
    for age, line in ((3, "one"), (2, "two"), (1, "three")):
        places[line] = Path(_packages.ensure(spec(line)))
        os.utime(places[line] / _cache.MARK, (1000 - age, 1000 - age))
    # All are in use, so all stay.
    assert made(cache) == sorted(places.values())
    leave()
    _packages.ensure(spec("one"))
    leave()
    places["four"] = Path(_packages.ensure(spec("four")))
    assert made(cache) == sorted([places["one"], places["four"]])
    assert sorted(path.name for path in cache.glob("*.lock")) == sorted(
        f"{places[line].name}.lock" for line in ("one", "four")
    )
    leave()
    _packages.ensure(spec("two"))
    assert builds == ["one", "two", "three", "four", "two"]
    leave()


def test_the_content_of_local_files_counts(tmp_path: Path) -> None:
    path = wheel(tmp_path, "1.0")
    before = _packages.identity(spec(path))
    assert _packages.identity(spec(path)) == before
    os.utime(path, ns=(1, 1))
    assert _packages.identity(spec(path)) != before


def test_it_takes_no_longer_than_it_may() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(_packages.SetupError, match=r"(?s)one was not there in time.*setup_timeout_seconds"):
        _packages._run(command, spec("one"), time.monotonic() + 0.1)
