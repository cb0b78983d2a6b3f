"""A store without room: spilling, restoring, disks that are full, and writers that die."""

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from aktis._engine import current
from aktis.cluster_utils import Cluster, ClusterNode
from aktis.util import debug
from support import Latch, is_alive, wait_until

pytestmark = pytest.mark.usefixtures("no_session")

MEBIBYTE = 1 << 20
CAPACITY = 64 * MEBIBYTE
PATIENCE = 40


def pattern(number: int, size: int = 4 * MEBIBYTE) -> bytes:
    return random.Random(number).randbytes(1024) * (size // 1024)


@aktis.remote(max_retries=-1)
def makes(number: int) -> bytes:
    return pattern(number)


@aktis.remote(max_retries=-1)
def check(number: int, value: bytes) -> bool:
    return value == pattern(number)


@pytest.fixture
def small_store(no_session: None, tmp_path: Path) -> Iterator[Path]:
    """A session with a store of 64 MiB, and the folder that it spills to."""
    folder = tmp_path / "spill"
    folder.mkdir()
    aktis.init(num_cpus=2, object_store_memory=CAPACITY, object_spilling_directory=str(folder))
    yield folder
    aktis.shutdown()
    assert list(folder.iterdir()) == [], "no file is left"


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=PATIENCE)


def all_is_freed() -> None:
    wait_until(lambda: debug.store_stats()["all_objects"] == 0, what="the store to be empty")
    wait_until(lambda: not runtime_rows("objects"), what="the node to forget all objects")


def runtime_rows(what: str) -> list[dict[str, Any]]:
    found = current()
    assert found is not None
    # What functions are made of is kept.
    return [row for row in found.state(what) if row.get("size", MEBIBYTE) >= MEBIBYTE]


def test_more_than_fits_is_spilled_and_restored(small_store: Path) -> None:
    refs = [aktis.put(pattern(number)) for number in range(40)]
    stats = debug.store_stats()
    assert stats["used_bytes"] <= CAPACITY
    assert stats["spilled_bytes"] >= 40 * 4 * MEBIBYTE - CAPACITY
    order = list(range(40))
    random.Random(1).shuffle(order)
    for number in order:
        assert get(refs[number]) == pattern(number)
    assert debug.store_stats()["restored_bytes"] > 0
    assert all(get([check.remote(number, refs[number]) for number in order]))
    del refs
    all_is_freed()


def test_results_are_spilled_too(small_store: Path) -> None:
    made = [makes.remote(number) for number in range(40)]
    assert all(get([check.remote(number, ref) for number, ref in enumerate(made)]))
    assert debug.store_stats()["spilled_bytes"] > 0
    again = [aktis.put([ref]) for ref in made]
    del made
    for number in (39, 0, 20):
        assert get(get(again[number])[0]) == pattern(number)
    del again
    all_is_freed()


def test_what_is_in_use_stays_where_it_is(small_store: Path) -> None:
    numpy = pytest.importorskip("numpy")
    refs = [aktis.put(numpy.full(MEBIBYTE, number, dtype=numpy.int32)) for number in range(12)]
    views = get(refs)
    # 48 of 64 MiB are looked at: there is room for a little more. A large value lies on disk.
    more = [aktis.put(pattern(number)) for number in range(2)]
    large = aktis.put(numpy.full(8 * MEBIBYTE, 5, dtype=numpy.int32))
    view = get(large)
    del large
    assert (view == 5).all()
    assert not view.flags.writeable
    assert all((view == number).all() for number, view in enumerate(views))
    del views
    assert [get(ref) for ref in more] == [pattern(0), pattern(1)]
    assert all((get(ref) == number).all() for number, ref in enumerate(refs))
    assert (view == 5).all()
    del more, refs, view
    all_is_freed()
    wait_until(lambda: debug.store_stats()["on_disk_bytes"] == 0, what="the disk to be free")


@pytest.mark.parametrize("cpus", [1, 4, 8])
def test_tasks_that_fit_one_by_one_all_finish(no_session: None, tmp_path: Path, cpus: int) -> None:
    """Running tasks kept their inputs in memory and waited for each other's room, until they failed."""
    numpy = pytest.importorskip("numpy")
    aktis.init(num_cpus=cpus, object_store_memory=CAPACITY, object_spilling_directory=str(tmp_path))
    fill = aktis.remote(lambda number: numpy.full(8 * MEBIBYTE, number, dtype=numpy.uint8))
    join = aktis.remote(lambda first, second: numpy.concatenate([first, second]))
    joined = [join.remote(fill.remote(number), fill.remote(100 + number)) for number in range(8)]
    for number, ref in enumerate(joined):
        first, second = numpy.split(aktis.get(ref, timeout=20), 2)
        assert (first == number).all()
        assert (second == 100 + number).all()


def test_an_object_larger_than_the_store_lies_on_disk(small_store: Path) -> None:
    for _ in range(2):
        assert get(aktis.put(bytes(2 * CAPACITY))) == bytes(2 * CAPACITY)
        assert len(get(aktis.remote(lambda: bytes(2 * CAPACITY)).remote())) == 2 * CAPACITY
        assert not get(check.remote(1, bytes(2 * CAPACITY)))
    assert get(aktis.put(pattern(1))) == pattern(1)
    all_is_freed()


def test_an_object_that_never_fits(no_session: None) -> None:
    configuration = {"automatic_object_spilling_enabled": False}
    aktis.init(num_cpus=2, object_store_memory=CAPACITY, _system_config=configuration)
    for _ in range(2):
        with pytest.raises(exceptions.ObjectStoreFullError, match="larger than the object store"):
            aktis.put(bytes(2 * CAPACITY))
        with pytest.raises(exceptions.ObjectStoreFullError):
            get(aktis.remote(lambda: bytes(2 * CAPACITY)).remote())
        with pytest.raises(exceptions.ObjectStoreFullError):
            get(check.remote(1, bytes(2 * CAPACITY)))
    assert get(aktis.put(pattern(1))) == pattern(1)
    all_is_freed()


def test_without_spilling_it_is_full(no_session: None) -> None:
    aktis.init(
        num_cpus=2,
        object_store_memory=CAPACITY,
        _system_config={"automatic_object_spilling_enabled": False},
    )
    refs = []
    with pytest.raises(exceptions.ObjectStoreFullError, match="hint:"):
        for number in range(40):
            refs.append(aktis.put(pattern(number)))
    assert len(refs) >= 10
    assert [get(ref) for ref in refs] == [pattern(number) for number in range(len(refs))]
    with pytest.raises(exceptions.ObjectStoreFullError):
        get([makes.remote(number) for number in range(3)])
    refs.clear()
    all_is_freed()
    assert get(makes.remote(1)) == pattern(1)


def test_the_disk_is_full(run_script: Any) -> None:
    """A limit for files stands for a disk without room: an error for what does not fit, and nothing else."""
    done = run_script(
        """
        import os, resource, signal, sys
        import aktis
        os.mkdir("spill")
        folder = os.path.abspath("spill")
        aktis.init(num_cpus=1, object_store_memory=64 << 20, object_spilling_directory=folder)
        @aktis.remote
        def size(value): return len(value)
        assert aktis.get(size.remote(b"x")) == 1
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, hard))
        refs = []
        try:
            for number in range(60):
                refs.append(aktis.put(bytes([number]) * (4 << 20)))
            print("no error")
        except (aktis.exceptions.OutOfDiskError, aktis.exceptions.ObjectStoreFullError) as error:
            print("refused")
        assert len(refs) >= 16, len(refs)
        # In memory there is no room for what is on the disk, and on the disk none for what is in memory.
        del refs[12:]
        for number, ref in enumerate(refs):
            assert aktis.get(ref, timeout=10) == bytes([number]) * (4 << 20), number
        print("read")
        del ref
        refs.clear()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        again = [aktis.put(bytes([number]) * (4 << 20)) for number in range(60)]
        assert aktis.get([size.remote(ref) for ref in again]) == [4 << 20] * 60
        print("again")
        """,
        timeout=40,
    )
    assert done.stdout.split() == ["refused", "read", "again"], done.stdout + done.stderr


def spill_folders(node: ClusterNode) -> set[str]:
    """Where the files are that a node spills to. They have no names."""
    assert node.process is not None
    links = Path(f"/proc/{node.process.pid}/fd").iterdir()
    return {os.path.dirname(os.readlink(link)) for link in links if "(deleted)" in os.readlink(link)}


def test_nodes_of_a_cluster_spill_where_they_are_told(no_session: None, tmp_path: Path) -> None:
    def fill(count: int) -> list[Any]:
        return [aktis.put(pattern(number)) for number in range(count)]

    shared, own = tmp_path / "shared", tmp_path / "own"
    own.mkdir()
    configuration = {
        "object_spilling_config": json.dumps(
            {"type": "filesystem", "params": {"directory_path": str(shared)}}
        )
    }
    with Cluster(
        initialize_head=True, connect=True, head_node_args={"num_cpus": 0, "_system_config": configuration}
    ) as cluster:
        node_args: dict[str, Any] = {"num_cpus": 1, "object_store_memory": CAPACITY}
        chosen = cluster.add_node(**node_args, resources={"own": 1}, object_spilling_directory=own)
        usual = cluster.add_node(**node_args, resources={"shared": 1})
        filled = [aktis.remote(resources={name: 1})(fill).remote(40) for name in ("own", "shared")]
        kept = get(filled)
        assert str(own) in spill_folders(chosen)
        assert str(shared) in spill_folders(usual)
        assert str(shared) not in spill_folders(chosen)
        assert [get(refs[0]) for refs in kept] == [pattern(0)] * 2
        cluster.add_node(num_cpus=1, object_spilling_directory=tmp_path / "missing")
        assert (tmp_path / "missing").is_dir()


def test_nodes_of_a_cluster_without_spilling_are_full(no_session: None) -> None:
    arguments = {
        "num_cpus": 0,
        "object_store_memory": CAPACITY,
        "_system_config": {"automatic_object_spilling_enabled": False},
    }
    with Cluster(initialize_head=True, connect=True, head_node_args=arguments):
        refs = []
        with pytest.raises(exceptions.ObjectStoreFullError, match="hint:"):
            for number in range(40):
                refs.append(aktis.put(pattern(number)))
        assert len(refs) >= 10


def test_a_directory_that_cannot_be_written(no_session: None, tmp_path: Path) -> None:
    """It is an error at the beginning, or when it is needed; in both cases it names the directory."""
    missing = str(tmp_path / "missing" / "folder")
    try:
        aktis.init(num_cpus=1, object_store_memory=CAPACITY, object_spilling_directory=missing)
    except Exception as error:
        assert "missing" in str(error)
        assert not aktis.is_initialized()
        return
    refs: list[Any] = []
    try:
        refs += [aktis.put(pattern(number)) for number in range(40)]
    except exceptions.AktisError as error:
        assert "missing" in str(error)
    else:
        assert [get(ref) for ref in refs] == [pattern(number) for number in range(40)]


def test_writers_die_while_they_write(small_store: Path) -> None:
    """What a dead worker was writing is freed; what it had written counts, or is made again."""
    done = threading.Event()
    dice = random.Random(2)
    killed = []

    def kills() -> None:
        while not done.wait(dice.uniform(0.005, 0.05)):
            session = current()
            pids = [pid for pid in session.worker_pids() if pid not in killed] if session else []
            if pids:
                try:
                    os.kill(pid := dice.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.append(pid)

    thread = threading.Thread(target=kills, daemon=True)
    thread.start()
    try:
        while len(killed) < 40:
            refs = [makes.remote(number) for number in range(24)]
            checks = [check.remote(number, ref) for number, ref in enumerate(refs)]
            assert all(get(checks))
            assert get(refs[7]) == pattern(7)
            del refs, checks
    finally:
        done.set()
        thread.join(PATIENCE)
    wait_until(lambda: not any(map(is_alive, killed)), what="the killed to be gone")
    all_is_freed()


def test_many_writers_wait_for_room(small_store: Path, latch: Latch) -> None:
    """Threads and workers write more than fits at the same time: they wait, and none is refused."""
    wrong: list[Any] = []

    def writes(seed: int) -> None:
        try:
            for number in range(seed, seed + 10):
                ref = aktis.put(pattern(number))
                value = get(makes.remote(number))
                if not (value == get(ref) == pattern(number)):
                    wrong.append(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=writes, args=(100 * seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    all_is_freed()


def test_a_missing_spill_directory_is_made(no_session: None, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    aktis.init(num_cpus=1, object_spilling_directory=str(folder))
    assert folder.is_dir()
