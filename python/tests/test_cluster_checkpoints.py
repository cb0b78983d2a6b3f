"""Checkpoints and nodes that die: an actor goes on at another node with exact counts, or ends in words."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from aktis.cluster_utils import Cluster, ClusterNode
from support import children_of, wait_until

SECONDS = 40


@aktis.remote(max_restarts=10, num_cpus=0, resources={"place": 1})
class Ledger:
    """Counts how often each number was added."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, number: int) -> int:
        self.counts[number] = self.counts.get(number, 0) + 1
        return sum(self.counts.values())

    @aktis.method(read_only=True)
    def where(self) -> tuple[str, int]:
        return aktis.get_runtime_context().get_node_id(), os.getpid()

    @aktis.method(read_only=True)
    def seen(self) -> dict[int, int]:
        return self.counts


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0}) as cluster:
        yield cluster


class Places:
    """Two nodes where actors can run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = [self.start(), self.start()]

    def start(self) -> ClusterNode:
        return self.cluster.add_node(num_cpus=1, resources={"place": 1})

    def node(self, node_id: str) -> ClusterNode:
        return next(node for node in self.nodes if node.node_id == node_id)

    def daemon(self, node_id: str) -> int:
        process = self.node(node_id).process
        assert process is not None
        return process.pid

    def lose(self, node_id: str) -> None:
        """Kills a node's daemon, with `kill -9`, and its workers."""
        node, pids = self.node(node_id), [self.daemon(node_id)]
        self.nodes.remove(node)
        for pid in pids:
            pids += children_of(pid)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def places(cluster: Cluster, no_session: None) -> Iterator[Places]:
    places = Places(cluster)
    aktis.init(cluster.address)
    yield places
    aktis.shutdown()
    for node in places.nodes:
        cluster.remove_node(node, allow_graceful=False)


def node_is_alive(node_id: str) -> bool:
    return any(node["NodeID"] == node_id and node["Alive"] for node in aktis.nodes())


def get(refs: Any) -> Any:
    return aktis.get(refs, timeout=SECONDS)


@pytest.mark.parametrize("checkpoint", [1, 7, True])
def test_an_actor_goes_on_at_another_node_with_the_exact_count(
    places: Places, tmp_path: Path, checkpoint: Any
) -> None:
    ledger = Ledger.options(checkpoint=checkpoint, checkpoint_directory=tmp_path).remote()
    assert get([ledger.add.remote(number) for number in range(50)]) == list(range(1, 51))
    first, pid = get(ledger.where.remote())
    calls = [ledger.add.remote(number) for number in range(50, 100)]
    get(calls[20])
    places.lose(first)
    assert get(calls) == list(range(51, 101))
    second, other = get(ledger.where.remote())
    assert second != first and other != pid
    assert get(ledger.seen.remote()) == dict.fromkeys(range(100), 1)
    aktis.kill(ledger)
    wait_until(lambda: not any(tmp_path.iterdir()), SECONDS, "the files to be removed")


def test_calls_count_once_while_their_nodes_die_again_and_again(places: Places, tmp_path: Path) -> None:
    ledger = Ledger.options(checkpoint=5, checkpoint_directory=tmp_path).remote()
    answers: list[int] = []
    done = threading.Event()

    def call() -> None:
        for start in range(0, 3000, 30):
            answers.extend(get([ledger.add.remote(number) for number in range(start, start + 30)]))
            if done.is_set() and start > 300:
                return

    caller = threading.Thread(target=call)
    caller.start()
    for _ in range(2):
        places.lose(get(ledger.where.remote())[0])
        places.nodes.append(places.start())
    done.set()
    caller.join()
    assert answers == list(range(1, len(answers) + 1))
    assert get(ledger.seen.remote()) == dict.fromkeys(range(len(answers)), 1)


def test_two_lives_of_an_actor_never_run_at_a_time(places: Places, tmp_path: Path) -> None:
    """The node is taken for dead while its daemon is stopped, but the worker of the actor lives on."""
    ledger = Ledger.options(checkpoint=True, checkpoint_directory=tmp_path).remote()
    assert get(ledger.add.remote(0)) == 1
    first, pid = get(ledger.where.remote())
    daemon = places.daemon(first)
    os.kill(daemon, signal.SIGSTOP)
    try:
        wait_until(lambda: not node_is_alive(first), SECONDS, "the node to be taken for dead")
        answer = ledger.add.remote(1)
        with pytest.raises(exceptions.GetTimeoutError):
            aktis.get(answer, timeout=2)
        os.kill(pid, signal.SIGKILL)
        assert get(answer) == 2
        assert get(ledger.where.remote())[0] != first
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_without_a_shared_directory_a_lost_node_ends_the_actor_in_words(places: Places) -> None:
    ledger = Ledger.options(checkpoint=1).remote()
    assert get(ledger.add.remote(0)) == 1
    places.lose(get(ledger.where.remote())[0])
    with pytest.raises(
        exceptions.ActorDiedError, match=r"not on this node(.|\n)*hint: .*checkpoint_directory"
    ):
        get(ledger.add.remote(1))


def test_the_environment_names_the_directory_of_all_actors(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AKTIS_CHECKPOINT_DIRECTORY", str(tmp_path))
    ledger = Ledger.options(checkpoint=1).remote()
    assert get(ledger.add.remote(0)) == 1
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setenv("AKTIS_CHECKPOINT_DIRECTORY", "here")
    with pytest.raises(ValueError, match=r"AKTIS_CHECKPOINT_DIRECTORY.*absolute path"):
        Ledger.options(checkpoint=1).remote()
