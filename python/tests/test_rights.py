"""Rights between jobs: what a driver can do with what is another's, and how drivers share."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aktis
from aktis._engine import native
from aktis.cluster_utils import Cluster
from aktis.util import list_named_actors
from aktis.util._runtime import runtime

SECONDS = 30

# Another driver: it has an actor and an object, says how they are called, and later whether they are well.
OTHER = """
import json, sys
import aktis

aktis.init(sys.argv[1], **json.loads(sys.argv[2]))

@aktis.remote(num_cpus=0)
class Vault:
    def secret(self):
        return "secret"

    def give(self):
        return [aktis.put("made in the vault")]

    def read(self, box):
        return aktis.get(box[0])

vault = Vault.options(name="vault").remote()
assert aktis.get(vault.secret.remote()) == "secret"
reference = aktis.put("a value")
reference.__reduce__()
told = {"namespace": aktis.get_runtime_context().namespace, "object": reference.binary().hex()}
print(json.dumps(told), flush=True)
sys.stdin.readline()
assert aktis.get(vault.secret.remote()) == "secret"
assert aktis.get(reference) == "a value"
print("well", flush=True)
"""

Start = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 2}) as cluster:
        yield cluster


@pytest.fixture
def other(cluster: Cluster, no_session: None) -> Iterator[Start]:
    """Starts another driver with these options. It is well in the end, whatever the test has done."""
    started = []

    def start(**options: Any) -> dict[str, Any]:
        command = [sys.executable, "-c", OTHER, cluster.address, json.dumps(options)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return dict(json.loads(process.stdout.readline()))

    try:
        yield start
        for process in started:
            assert process.communicate("\n", timeout=SECONDS)[0] == "well\n"
    finally:
        for process in started:
            process.kill()
            process.communicate()


def value_of(told: dict[str, Any]) -> Any:
    """The value of the other driver's object, by its id."""
    return aktis.get(native.object_from_id(bytes.fromhex(told["object"])), timeout=SECONDS)


def test_a_driver_cannot_use_what_is_anothers(cluster: Cluster, other: Start) -> None:
    told = other()
    aktis.init(cluster.address)
    assert not any(row["name"] == "vault" for row in list_named_actors(all_namespaces=True))
    assert not any(row["name"] for row in runtime().state("actors"))
    with pytest.raises(ValueError, match="there is no actor with the name 'vault'"):
        aktis.get_actor("vault", namespace=told["namespace"])
    with pytest.raises(aktis.exceptions.AktisError, match=r"belongs to another job(.|\n)*hint: "):
        value_of(told)


def test_drivers_share_the_actors_of_a_namespace_and_what_those_pass(cluster: Cluster, other: Start) -> None:
    told = other(namespace="shop")
    aktis.init(cluster.address)
    assert {"name": "vault", "namespace": "shop"} in list_named_actors(all_namespaces=True)
    vault = aktis.get_actor("vault", namespace="shop")
    assert aktis.get(vault.secret.remote(), timeout=SECONDS) == "secret"
    (inner,) = aktis.get(vault.give.remote(), timeout=SECONDS)
    assert aktis.get(inner, timeout=SECONDS) == "made in the vault"
    assert aktis.get(vault.read.remote([aktis.put("mine")]), timeout=SECONDS) == "mine"

    @aktis.remote
    def call(handle: Any) -> Any:
        return aktis.get(handle.secret.remote())

    assert aktis.get(call.remote(vault), timeout=SECONDS) == "secret"
    assert value_of(told) == "a value", "the two jobs are in one circle now"


def test_a_driver_that_shares_is_open_to_others(cluster: Cluster, other: Start) -> None:
    told = other(share=True)
    aktis.init(cluster.address)
    assert value_of(told) == "a value"
    with pytest.raises(TypeError, match="share"):
        aktis.Session(cluster.address, share="yes")  # type: ignore[arg-type]


def test_a_private_namespace_is_the_jobs_own(cluster: Cluster, no_session: None) -> None:
    aktis.init(cluster.address)

    @aktis.remote(num_cpus=0)
    class Counter:
        def names(self) -> list[str]:
            return [str(name) for name in list_named_actors()]

    counter = Counter.options(name="mine").remote()  # type: ignore[attr-defined]
    assert aktis.get(counter.names.remote(), timeout=SECONDS) == ["mine"]
    assert list_named_actors() == ["mine"]
    assert aktis.get(aktis.get_actor("mine").names.remote(), timeout=SECONDS) == ["mine"]
