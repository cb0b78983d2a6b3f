"""The state API: rows that are also dicts, filters and limits, and what there is in a session."""

import os
import pickle
from typing import Any

import pytest

import aktis
from aktis.util import placement_group
from aktis.util.state import (
    ActorState,
    NodeState,
    TaskState,
    get_actor,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)
from aktis.util.state._query import select
from support import Caller, Latch, wait_until

LARGE = 1 << 20


@aktis.remote
def hold(latch: Latch) -> int:
    latch.wait()
    return os.getpid()


@aktis.remote(num_cpus=0)
class Counter:
    def pid(self) -> int:
        return os.getpid()


# --- rows and filters, without a session ----------------------------------------------------------

ROWS = [
    ActorState(actor_id=f"{n:02x}", class_name="C", state="ALIVE" if n % 2 else "DEAD", pid=n)
    for n in range(6)
]


def chosen(*filters: Any, limit: int = 100) -> list[int | None]:
    return [row.pid for row in select(ActorState, ROWS, list(filters), limit)]


def test_the_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps([list_tasks, get_actor])) == [list_tasks, get_actor]


def test_a_row_is_a_dataclass_and_a_dict() -> None:
    row = ROWS[1]
    assert row.state == row["state"] == row.get("state") == "ALIVE"
    assert dict(row) == row.asdict() == row
    assert set(row) == set(row.keys())
    assert "pid" in row
    assert "nonsense" not in row
    with pytest.raises(KeyError):
        row["nonsense"]


def test_filters() -> None:
    assert chosen(("state", "=", "ALIVE")) == [1, 3, 5]
    assert chosen(("state", "=", "alive")) == [1, 3, 5]
    assert chosen(("state", "!=", "ALIVE")) == [0, 2, 4]
    assert chosen(("pid", ">", 1), ("pid", "<=", 4)) == [2, 3, 4]
    assert chosen(("pid", ">=", 4), ("state", "=", "DEAD")) == [4]
    assert chosen(("pid", "=", "3")) == [3]
    assert chosen(("pid", "=", "three")) == []
    assert chosen(("pid", "!=", "three")) == [0, 1, 2, 3, 4, 5]
    assert chosen(("is_detached", "=", "true")) == []
    assert chosen(("is_detached", "=", False), limit=1) == [0]
    assert chosen(("actor_id", "=", b"\x05")) == [5]
    assert chosen(limit=2) == [0, 1]


def test_bad_filters_and_limits_are_refused() -> None:
    for bad in [("nonsense", "=", 1), ("pid", "~", 1), ("pid", "="), "pid=1", ("pid", "<", "x")]:
        with pytest.raises(ValueError):
            chosen(bad)
    with pytest.raises(ValueError):
        chosen(limit=0)
    with pytest.raises(TypeError):
        chosen(limit="1")  # type: ignore[arg-type]


def test_ids_of_the_engine_become_text() -> None:
    row = NodeState.from_engine({"id": b"\x01\x02", "state": "alive", "resources": {"CPU": 2.0}})
    assert (row.node_id, row.state, row.resources_total) == ("0102", "ALIVE", {"CPU": 2.0})


# --- a session ------------------------------------------------------------------------------------


def test_a_running_task_is_listed(session: Any, latch: Latch) -> None:
    reference = hold.remote(latch)
    (pid,) = latch.wait_for_arrivals(1)
    row = wait_until(lambda: next(iter(list_tasks(filters=[("state", "=", "RUNNING")])), None))
    assert isinstance(row, TaskState)
    assert row.name.endswith("hold")
    assert row.worker_pid == pid
    assert get_task(row.task_id) == row
    found = get_task(reference)
    assert found is not None
    assert found.task_id == row.task_id
    summary = summarize_tasks()["cluster"]
    assert summary["summary"][row.func_or_class_name]["state_counts"]["RUNNING"] == 1
    assert summary["total_tasks"] >= 1
    latch.open()
    assert aktis.get(reference) == pid
    wait_until(lambda: not list_tasks(filters=[("state", "=", "RUNNING")]))
    assert get_task("00" * 16) is None


@pytest.mark.one_node("the record of what ran is that of the own node")
def test_a_call_is_listed_while_it_runs_and_afterwards(session: Any, latch: Latch) -> None:
    caller = Caller.remote()
    pid = aktis.get(caller.pid.remote())
    running = caller.call.remote(latch.wait)
    latch.wait_for_arrivals(1)
    first, row = list_tasks(filters=[("type", "=", "ACTOR_TASK")])
    assert (first.name, first.state, first.worker_pid) == ("Caller.pid", "FINISHED", pid)
    assert (row.name, row.state, row.worker_pid) == ("Caller.call", "RUNNING", pid)
    latch.open()
    aktis.get(running)
    assert [row.state for row in list_tasks(filters=[("type", "=", "ACTOR_TASK")])] == ["FINISHED"] * 2
    (made,) = list_tasks(filters=[("type", "=", "ACTOR_CREATION_TASK")])
    assert (made.name, made.state) == ("Caller.__init__", "FINISHED")


@aktis.remote
def child() -> None:
    pass


@aktis.remote
def parent() -> str:
    aktis.get(child.remote())
    return str(aktis.get_runtime_context().get_task_id())


@pytest.mark.one_node("the record of what ran is that of the own node")
def test_children_know_their_parents(session: Any) -> None:
    identity = aktis.get(parent.remote())
    rows = {row.name: row for row in list_tasks()}
    assert sorted(rows) == ["child", "parent"]
    assert rows["parent"].task_id == identity
    assert rows["child"].parent_task_id == identity
    assert {row.state for row in rows.values()} == {"FINISHED"}


@pytest.mark.one_node("the record of what ran is that of the own node")
def test_failed_tasks_tell_why(session: Any) -> None:
    @aktis.remote(max_retries=0)
    def failing(way: str) -> None:
        if way == "raises":
            raise ValueError("the reason")
        os._exit(27)

    blocked = failing.options(name="never", num_cpus=1000).remote("raises")
    aktis.cancel(blocked)
    calls = [failing.options(name=way).remote(way) for way in ("raises", "dies")]
    killed = Counter.remote()
    aktis.get(killed.pid.remote())
    aktis.kill(killed)
    for reference in (*calls, blocked, killed.pid.options(name="killed").remote()):
        with pytest.raises(Exception):  # noqa: B017
            aktis.get(reference)
    rows = {row.name: row for row in list_tasks(detail=True, filters=[("state", "=", "FAILED")])}
    told = {name: (row.error_type, row.error_message or "") for name, row in rows.items()}
    assert told["raises"][0] == "TASK_EXECUTION_EXCEPTION"
    assert "the reason" in told["raises"][1]
    assert told["dies"][0] == "WORKER_DIED"
    assert "Worker exits with an exit code 27" in told["dies"][1]
    assert told["never"][0] == "TASK_CANCELLED"
    assert told["killed"][0] == "ACTOR_DIED"
    assert "The actor is dead because it was killed by `ray.kill`" in told["killed"][1]


@pytest.mark.one_node("the record of what ran is that of the own node")
def test_a_task_that_is_cancelled_while_it_runs_says_so(session: Any) -> None:
    latch = Latch()
    reference = hold.options(name="held").remote(latch)
    latch.wait_for_arrivals(1)
    aktis.cancel(reference)
    with pytest.raises(aktis.exceptions.TaskCancelledError):
        aktis.get(reference, timeout=20)

    def row() -> Any:
        return next((row for row in list_tasks(detail=True) if row.name == "held"), None)

    wait_until(lambda: row() is not None and row().state == "FAILED")
    assert row().error_type == "TASK_CANCELLED"


def test_a_task_that_waits_for_resources_is_listed(session: Any) -> None:
    reference = hold.options(num_cpus=1000).remote(Latch())
    rows = wait_until(lambda: [row for row in list_tasks() if row.name.endswith("hold")])
    assert rows[0].state != "RUNNING"
    aktis.cancel(reference)


def test_actors(session: Any) -> None:
    actors = [Counter.options(name="first").remote(), Counter.remote()]
    pids = aktis.get([actor.pid.remote() for actor in actors])
    rows = list_actors(filters=[("state", "=", "ALIVE")])
    assert sorted(row.pid for row in rows) == sorted(pids)
    assert {row.class_name.rsplit(".", 1)[-1] for row in rows} == {"Counter"}
    (named,) = list_actors(filters=[("name", "=", "first")])
    assert named.pid == pids[0]
    found = get_actor(named.actor_id)
    assert found is not None
    assert found.actor_id == named.actor_id
    assert summarize_actors()["cluster"]["total_actors"] >= 2
    assert len(list_actors(limit=1)) == 1
    aktis.kill(actors[1])
    wait_until(lambda: len(list_actors(filters=[("state", "=", "ALIVE")])) == 1)


def test_objects(session: Any) -> None:
    reference = aktis.put(bytes(LARGE))
    (row,) = get_objects(reference)
    assert row.object_id == reference.hex()
    assert row.object_size >= LARGE
    assert row.object_id in [row.object_id for row in list_objects()]
    summary = summarize_objects()["cluster"]
    assert summary["total_objects"] >= 1
    assert summary["total_size_mb"] >= 1
    del reference
    wait_until(lambda: not get_objects(row.object_id))


def test_nodes_and_jobs(session: Any) -> None:
    (node,) = list_nodes()
    assert node.node_id == aktis.get_runtime_context().get_node_id()
    assert node.state == "ALIVE"
    assert node.resources_total["CPU"] == 2
    assert get_node(node.node_id) == node
    (job,) = list_jobs()
    assert job.driver_pid == os.getpid()
    assert job.status == "RUNNING"


def test_workers(session: Any) -> None:
    pid = aktis.get(Counter.remote().pid.remote())
    kept = Counter.remote()
    pid = aktis.get(kept.pid.remote())
    (row,) = list_workers(filters=[("pid", "=", pid)])
    assert row.is_alive
    assert get_worker(row.worker_id) == row


def test_placement_groups(session: Any) -> None:
    group = placement_group([{"CPU": 1}], name="listed")
    assert group.wait(10)
    (row,) = list_placement_groups(filters=[("state", "=", "CREATED")])
    assert row.placement_group_id == group.id.hex()
    assert row.name == "listed"
    assert get_placement_group(group.id) == row
