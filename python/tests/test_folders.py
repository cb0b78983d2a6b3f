"""`working_dir` and `py_modules` on a cluster: they travel to other nodes by what is in them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import _cache, _folders
from aktis.cluster_utils import Cluster
from aktis.util import debug

SECONDS = 60


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_session: None) -> Path:
    monkeypatch.setenv("AKTIS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "folders"


@pytest.fixture
def cluster(cache: Path) -> Iterator[Cluster]:
    """A head without CPUs, and a node that has two: whatever runs, runs elsewhere."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster:
        cluster.add_node(num_cpus=2)
        yield cluster


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a module, data in a folder, and things that stay at home."""
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "module_that_travels.py").write_text("VALUE = 1\n")
    (root / "data" / "numbers.txt").write_text("1 2 3")
    (root / "link.txt").symlink_to("data/numbers.txt")
    (root / "huge.bin").write_bytes(bytes(1000))
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("private")
    return root


def made(cache: Path) -> list[Path]:
    return sorted(path.parent for path in cache.glob(f"*/{_cache.MARK}"))


def look() -> dict[str, Any]:
    import module_that_travels  # type: ignore[import-not-found]

    return {
        "value": module_that_travels.VALUE,
        "here": os.getcwd(),
        "files": sorted(os.listdir()),
        "numbers": Path("link.txt").read_text(),
        "node": aktis.get_runtime_context().get_node_id(),
    }


looks = aktis.remote(look)


@aktis.remote
def looks_by_another() -> Any:
    return aktis.get(looks.remote())


def expect(seen: dict[str, Any], cluster: Cluster, cache: Path) -> None:
    (place,) = made(cache)
    assert seen["here"] == str(place / "project") and seen["value"] == 1 and seen["numbers"] == "1 2 3"
    assert seen["files"] == ["data", "link.txt", "module_that_travels.py"]
    (other,) = cluster.worker_nodes
    assert seen["node"] == other.node_id


def test_a_working_directory_travels(cluster: Cluster, project: Path, cache: Path) -> None:
    aktis.init(cluster.address)
    environment = {"working_dir": str(project), "excludes": ["*.bin"]}
    there = looks.options(runtime_env=environment)
    for seen in aktis.get([there.remote() for _ in range(4)], timeout=SECONDS):
        expect(seen, cluster, cache)
    with pytest.raises(ModuleNotFoundError):
        aktis.get(looks.remote(), timeout=SECONDS)
    nested = looks_by_another.options(runtime_env=environment)
    expect(aktis.get(nested.remote(), timeout=SECONDS), cluster, cache)


def test_a_job_has_a_working_directory(cluster: Cluster, project: Path, cache: Path) -> None:
    aktis.init(cluster.address, runtime_env={"working_dir": str(project), "excludes": ["/huge.bin"]})
    expect(aktis.get(looks.remote(), timeout=SECONDS), cluster, cache)
    expect(aktis.get(looks_by_another.remote(), timeout=SECONDS), cluster, cache)

    @aktis.remote
    class Looks:
        def look(self) -> dict[str, Any]:
            return look()

    expect(aktis.get(Looks.remote().look.remote(), timeout=SECONDS), cluster, cache)
    assert len(debug.kv_list(namespace=_folders.KEYS)) == 1
    aktis.shutdown()
    aktis.init(cluster.address)
    assert debug.kv_list(namespace=_folders.KEYS) == [], "a job leaves nothing behind"


def test_what_changed_travels_again(cluster: Cluster, project: Path, cache: Path) -> None:
    aktis.init(cluster.address)
    environment = {"working_dir": str(project), "excludes": ["*.bin"]}
    there = looks.options(runtime_env=environment)
    assert aktis.get(there.remote(), timeout=SECONDS)["value"] == 1
    (project / "module_that_travels.py").write_text("VALUE = 'another one'\n")
    assert aktis.get(there.remote(), timeout=SECONDS)["value"] == "another one"
    assert len(made(cache)) == 2


def test_modules_travel(cluster: Cluster, tmp_path: Path) -> None:
    package = tmp_path / "package_that_travels"
    package.mkdir()
    (package / "__init__.py").write_text("from .part import VALUE\n")
    (package / "part.py").write_text("VALUE = 5\n")

    @aktis.remote
    class Uses:
        def value(self) -> tuple[int, str]:
            import package_that_travels  # type: ignore[import-not-found]

            return package_that_travels.VALUE, package_that_travels.__file__

    aktis.init(cluster.address)
    actor = Uses.options(runtime_env={"py_modules": [str(package)]}).remote()
    value, file = aktis.get(actor.value.remote(), timeout=SECONDS)
    assert value == 5 and not file.startswith(str(package)), "it is not read where the driver has it"


def test_what_cannot_travel_is_refused(
    cluster: Cluster, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aktis.init(cluster.address)
    there = looks.options(runtime_env={"working_dir": str(project)})
    monkeypatch.setattr(_folders, "ARCHIVE_BYTES_MAX", 2000)
    with pytest.raises(aktis.exceptions.RuntimeEnvSetupError, match=r"(?s)too much.*hint: leave large files"):
        there.remote()
    monkeypatch.undo()
    (project / "out").symlink_to(os.path.dirname(sys.executable))
    with pytest.raises(aktis.exceptions.RuntimeEnvSetupError, match="a link to a folder outside"):
        there.remote()


def test_the_same_content_is_the_same_archive(project: Path) -> None:
    before = _folders.pack(str(project), ())
    os.utime(project / "module_that_travels.py", (1, 1))
    assert _folders.pack(str(project), ()) == before
    assert _folders.pack(str(project), ("data",)) != before
    assert b"private" not in before


# --- Python without filters for archives ------------------------------------------------------------


@pytest.fixture
def no_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Python 3.11.0 to 3.11.3."""
    import tarfile

    whole = tarfile.TarFile.extractall

    def extractall(self: Any, path: Any = ".", members: Any = None, *, numeric_owner: bool = False) -> None:
        whole(self, path, members, numeric_owner=numeric_owner)

    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)


def test_a_folder_is_unpacked_without_filters(project: Path, tmp_path: Path, no_filters: None) -> None:
    (project / "data" / "run.sh").write_text("true")
    (project / "data" / "run.sh").chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    _folders._unpack(_folders.pack(str(project), ["huge.bin"]), str(place))
    there = place / "project"
    assert sorted(entry.name for entry in there.iterdir()) == ["data", "link.txt", "module_that_travels.py"]
    assert (there / "link.txt").is_symlink() and (there / "link.txt").read_text() == "1 2 3"
    assert (there / "data" / "run.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "members",
    [
        [("../out", "file", "")],
        [("/tmp/out", "file", "")],
        [("link", "link", "/etc")],
        [("link", "link", "../..")],
        [("here", "link", "."), ("out", "link", "here/a/../../..")],
        [("link", "link", "data"), ("link", "file", "")],
        [("hard", "hard", "/etc/passwd")],
        [("device", "device", "")],
    ],
)
def test_archives_that_lead_out_are_refused_without_filters(
    members: list[tuple[str, str, str]], tmp_path: Path, no_filters: None
) -> None:
    import io
    import tarfile

    kinds = {
        "file": tarfile.REGTYPE,
        "link": tarfile.SYMTYPE,
        "hard": tarfile.LNKTYPE,
        "device": tarfile.CHRTYPE,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kinds[kind], target
            archive.addfile(member)
    place = tmp_path / "a" / "place"
    place.mkdir(parents=True)
    with pytest.raises(_folders.FolderError):
        _folders._unpack(buffer.getvalue(), str(place))
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["place"], "nothing outside of it"


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """It is sparse: reading it would take more memory than the test may have."""
    folder = tmp_path / "project"
    folder.mkdir()
    with open(folder / "weights.bin", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(_folders.FolderError, match="more than 512 MiB"):
        _folders.pack(str(folder), ())
    _folders.pack(str(folder), ("*.bin",))
