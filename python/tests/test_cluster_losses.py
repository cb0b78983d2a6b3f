"""Values whose only copy died with a node: made again by running their tasks again, or lost with words
(behaviour 23)."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import aktis
from aktis import exceptions
from aktis.cluster_utils import Cluster, ClusterNode
from support import wait_until

NoRetryLeft = exceptions.ObjectReconstructionFailedMaxAttemptsExceededError
NotOnRecord = exceptions.ObjectReconstructionFailedLineageEvictedError

SECONDS = 40
LARGE = 100_000


class Place:
    """A node that dies, with all that it has, and is followed by another like it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.node = self.start()

    def start(self) -> ClusterNode:
        return self.cluster.add_node(num_cpus=2, resources={"place": 10})

    def lose(self) -> None:
        """Kills the node, and adds another."""
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.node = self.start()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, on which the driver is."""
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster:
        yield cluster


@pytest.fixture
def place(cluster: Cluster, no_session: None) -> Iterator[Place]:
    """The only node where tasks can run. The driver has no copy of what they make, unless it reads it."""
    place = Place(cluster)
    aktis.init(cluster.address)
    yield place
    cluster.remove_node(place.node, allow_graceful=False)


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=SECONDS)


def made(*refs: Any) -> None:
    """Waits until there are values, and fetches none."""
    ready, _ = aktis.wait(list(refs), num_returns=len(refs), timeout=SECONDS, fetch_local=False)
    assert len(ready) == len(refs)


def note(folder: Path, name: str) -> None:
    """Notes that a task has run."""
    number = 0
    while True:
        try:
            os.close(os.open(folder / f"{name}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
        else:
            return


def runs(folder: Path) -> dict[str, int]:
    """How often each task has run."""
    names = [path.name.partition("-")[0] for path in folder.iterdir()]
    return {name: names.count(name) for name in names}


@aktis.remote
def fill(folder: Path, number: int) -> Any:
    note(folder, "fill")
    return numpy.full(LARGE, number)


@aktis.remote
def add(folder: Path, *arrays: Any) -> Any:
    note(folder, "add")
    return sum(arrays) + 1


@aktis.remote
def add_inside(folder: Path, refs: list[Any]) -> Any:
    note(folder, "add_inside")
    return sum(aktis.get(refs)) + 1


@aktis.remote
def first(array: Any) -> int:
    return int(array[0])


def test_a_result_is_made_again(place: Place, tmp_path: Path) -> None:
    refs = [fill.remote(tmp_path, number) for number in range(3)]
    made(*refs)
    place.lose()
    for number, array in enumerate(get(refs)):
        assert (array == number).all()
        assert len(array) == LARGE
    assert runs(tmp_path) == {"fill": 6}, "each once more, and only once"
    place.lose()
    assert get(refs[0])[0] == 0, "the driver has read it, so there is a copy"
    assert runs(tmp_path) == {"fill": 6}


def test_nothing_is_made_again_that_nobody_asks_for(place: Place, tmp_path: Path) -> None:
    wanted, other = fill.remote(tmp_path, 1), fill.remote(tmp_path, 2)
    made(wanted, other)
    place.lose()
    assert get(first.remote(wanted)) == 1
    assert runs(tmp_path) == {"fill": 3}
    assert get(first.remote(other)) == 2
    assert runs(tmp_path) == {"fill": 4}


def test_a_chain_is_made_again_from_its_beginning(place: Place, tmp_path: Path) -> None:
    ref = fill.remote(tmp_path, 0)
    for _ in range(5):
        ref = add.remote(tmp_path, ref)
    made(ref)
    place.lose()
    assert (get(ref) == 5).all()
    assert runs(tmp_path) == {"fill": 2, "add": 10}


def test_a_diamond_is_made_again_and_its_beginning_once(place: Place, tmp_path: Path) -> None:
    begin = fill.remote(tmp_path, 1)
    left, right = add.remote(tmp_path, begin), add.remote(tmp_path, begin)
    end = add.remote(tmp_path, left, right)
    made(end)
    place.lose()
    assert (get(end) == 5).all()
    assert runs(tmp_path) == {"fill": 2, "add": 6}
    # All of it can be read afterwards, and nothing has to run for it.
    assert get(first.remote(begin)) == 1
    assert get([first.remote(left), first.remote(right)]) == [2, 2]
    assert runs(tmp_path) == {"fill": 2, "add": 6}


def test_what_an_argument_refers_to_is_made_again(place: Place, tmp_path: Path) -> None:
    parts = [fill.remote(tmp_path, number) for number in range(3)]
    total = add_inside.remote(tmp_path, parts)
    made(total)
    del parts
    place.lose()
    assert (get(total) == 4).all()
    assert runs(tmp_path) == {"fill": 6, "add_inside": 2}


def test_several_results_of_one_task(place: Place, tmp_path: Path) -> None:
    @aktis.remote(num_returns=2)
    def both(folder: Path) -> Any:
        note(folder, "both")
        return numpy.full(LARGE, 1), numpy.full(LARGE, 2)

    refs = both.remote(tmp_path)
    made(*refs)
    place.lose()
    assert [array[0] for array in get(refs)] == [1, 2]
    assert runs(tmp_path) == {"both": 2}


def test_a_value_is_lost_again_and_again(place: Place, tmp_path: Path) -> None:
    ref = fill.options(max_retries=2).remote(tmp_path, 7)
    made(ref)
    for _ in range(2):
        place.lose()
        assert get(first.remote(ref)) == 7
    assert runs(tmp_path) == {"fill": 3}
    place.lose()
    for lost in (ref, first.remote(ref)):
        with pytest.raises(NoRetryLeft, match="no retry is left after 3 runs"):
            get(lost)
    assert runs(tmp_path) == {"fill": 3}


def test_a_task_that_may_run_once_runs_once(place: Place, tmp_path: Path) -> None:
    ref = fill.options(max_retries=0).remote(tmp_path, 7)
    after = add.remote(tmp_path, ref)
    made(after)
    place.lose()
    for lost in (ref, after):
        with pytest.raises(NoRetryLeft, match="no retry is left after 1 run of"):
            get(lost)
    assert runs(tmp_path) == {"fill": 1, "add": 1}


@pytest.mark.parametrize("config", [{"lineage_pinning_enabled": False}, {"max_lineage_bytes": 4000}])
def test_a_task_that_is_not_on_record_any_more_is_not_run_again(
    cluster: Cluster, place: Place, tmp_path: Path, config: dict[str, Any]
) -> None:
    aktis.shutdown()
    aktis.init(cluster.address, _system_config=config)
    ref = fill.remote(tmp_path, 7)
    others = [fill.remote(tmp_path, number) for number in range(60)]
    made(ref, *others)
    place.lose()
    with pytest.raises(NotOnRecord, match="not on record any more") as raised:
        get(ref)
    assert raised.value.object_ref_hex == ref.hex()
    assert runs(tmp_path) == {"fill": 61}
    if "max_lineage_bytes" in config:
        assert get(first.remote(others[-1])) == 59, "the last is"


def test_what_was_put_there_is_lost(place: Place) -> None:
    @aktis.remote
    def put() -> list[Any]:
        return [aktis.put(numpy.zeros(LARGE))]

    (ref,) = get(put.remote())
    # Where the copy was is said by whoever was told in time: the cluster, or the driver's node.
    words = f"the object {ref.hex()} is lost: .* node {place.node.node_id}, which is"
    place.lose()
    for lost in (ref, [ref], first.remote(ref)):
        with pytest.raises(exceptions.ObjectLostError, match=words) as raised:
            get(lost)
        assert raised.value.object_ref_hex == ref.hex()


def test_what_an_actor_gave_is_lost(place: Place) -> None:
    @aktis.remote(num_cpus=1)
    class Maker:
        def make(self) -> Any:
            return numpy.zeros(LARGE)

    maker = Maker.remote()
    ref = maker.make.remote()
    made(ref)
    place.lose()
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match="calls of actors are not made"):
        get(ref)


def test_an_actor_that_restarts_without_its_arguments_says_so(place: Place) -> None:
    @aktis.remote(max_retries=0)
    def make() -> Any:
        return numpy.zeros(LARGE)

    @aktis.remote(num_cpus=1, max_restarts=-1)
    class Reader:
        def __init__(self, value: Any) -> None:
            self.size = len(value)

        def get(self) -> int:
            return self.size

    def failure() -> exceptions.ActorDiedError | None:
        try:
            get(reader.get.remote())
        except exceptions.ActorDiedError as error:
            return error if error.actor_init_failed else None
        return None

    reader = Reader.remote(make.remote())
    assert get(reader.get.remote()) == LARGE
    place.lose()
    error = wait_until(failure, SECONDS, "the actor to be dead")
    assert "the arguments of its constructor are lost: ObjectReconstructionFailedError" in str(error)


def test_what_the_driver_has_put_is_input_again_if_it_is_kept(place: Place, tmp_path: Path) -> None:
    kept, dropped = (aktis.put(numpy.full(LARGE, number)) for number in (2, 3))
    refs = [add.remote(tmp_path, kept), add.remote(tmp_path, dropped)]
    made(*refs)
    del dropped
    place.lose()
    assert (get(refs[0]) == 3).all()
    with pytest.raises(exceptions.ObjectLostError):
        get(refs[1])


@aktis.remote(max_retries=-1, resources={"place": 0.1}, num_cpus=0)
def waits_for_file(folder: Path, number: int) -> int:
    note(folder, "waits_for_file")
    while not (folder / "open").exists():
        time.sleep(0.01)
    return number + 1000


@aktis.remote(resources={"place": 0.1}, num_cpus=0)
def submits(folder: Path) -> list[Any]:
    return [waits_for_file.remote(folder, number) for number in range(2)]


def test_tasks_of_a_dead_node_find_the_code_that_the_driver_has(place: Place, tmp_path: Path) -> None:
    """A task exported a function of the driver's again, under an id that died with its node: "its code
    cannot be fetched"."""
    folder = tmp_path / "runs"
    folder.mkdir()
    refs = get(submits.remote(folder))
    wait_until(lambda: runs(folder) == {"waits_for_file": 2}, what="both tasks")
    place.lose()
    (folder / "open").touch()
    assert get(refs) == [1000, 1001]


def test_code_of_a_dead_worker_is_kept_by_its_node(place: Place) -> None:
    """A function that only a task knew was lost with the process of that task."""

    @aktis.remote(max_calls=1, resources={"place": 0.1}, num_cpus=0)
    def exports_and_ends() -> tuple[int, Any]:
        @aktis.remote(max_restarts=1, max_task_retries=1, lifetime="detached", name="kept", num_cpus=0)
        class Kept:
            def pid(self) -> int:
                return os.getpid()

        actor = Kept.options(resources={"place": 0.1}).remote()
        return os.getpid(), aktis.get(actor.pid.remote())

    _, before = get(exports_and_ends.remote())
    actor = aktis.get_actor("kept")
    os.kill(before, signal.SIGKILL)
    assert get(actor.pid.remote()) != before
    aktis.kill(actor)
