"""Groups of actors, tasks and drivers: operations, failures, and what is left behind."""

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aktis
from aktis import collective
from aktis.cluster_utils import Cluster
from support import Caller, Latch, get, wait_until

TYPES = ["float32", "float64", "float16", "int32", "int64", "uint8"]


@aktis.remote(num_cpus=0)
class Member:
    """An actor in a group; it does what it is told with it."""

    def join(self, name: str, size: int, rank: int, timeout: float = 20.0) -> int:
        self.group = collective.init_group(name, size, rank, timeout=timeout)
        return os.getpid()

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.group, *args)

    def error(self, function: Callable[..., Any]) -> tuple[str, str, int | None]:
        """The exception that an operation raises."""
        try:
            function(self.group)
        except Exception as error:
            return type(error).__name__, str(error), getattr(error, "rank", None)
        return "none", "", None

    def regroup(self) -> tuple[int, int]:
        self.group = self.group.regroup()
        return self.group.rank, self.group.world_size


def make_group(name: str, size: int, options: Callable[[int], dict[str, Any]] = lambda rank: {}) -> list[Any]:
    members = [Member.options(**options(rank)).remote() for rank in range(size)]
    get([member.join.remote(name, size, rank) for rank, member in enumerate(members)])
    return members


def run_all(members: list[Any], function: Callable[..., Any], *args: Any) -> list[Any]:
    return list(get([member.run.remote(function, *args) for member in members]))


@pytest.fixture
def members(session: Any, request: pytest.FixtureRequest) -> list[Any]:
    return make_group(request.node.name, 3)


def test_operations_equal_numpy(members: list[Any]) -> None:
    def operations(group: collective.Group, kind: str, length: int) -> dict[str, Any]:
        own = (np.arange(length) % 5 + group.rank).astype(kind)
        stacked = (np.arange(length * 3) % 5 + group.rank).astype(kind).reshape(3 * length, 1)
        found: dict[str, Any] = {
            op: group.allreduce(own.copy(), op) for op in ("sum", "product", "min", "max")
        }
        out = np.empty_like(own)
        assert group.allreduce(own, "sum", out=out) is out
        found["into"] = out
        found["reduce"] = group.reduce(own.copy(), root=1)
        found["scatter"] = group.reduce_scatter(stacked)
        found["gather"] = group.allgather(own)
        found["broadcast"] = group.broadcast(own.copy(), root=2)
        if group.rank == 0:
            group.send(own, to=2)
        if group.rank == 2:
            found["received"] = group.recv(np.empty_like(own), source=0)
        return found

    for kind in TYPES:
        for length in (0, 1, 7, 30_001):
            arrays = [(np.arange(length) % 5 + rank).astype(kind) for rank in range(3)]
            stacks = [(np.arange(length * 3) % 5 + rank).astype(kind) for rank in range(3)]
            total = np.sum(arrays, axis=0, dtype=kind)
            for rank, found in enumerate(run_all(members, operations, kind, length)):
                assert np.array_equal(found["sum"], total) and np.array_equal(found["into"], total)
                assert np.array_equal(found["product"], np.prod(arrays, axis=0, dtype=kind))
                assert np.array_equal(found["min"], np.min(arrays, axis=0))
                assert np.array_equal(found["max"], np.max(arrays, axis=0))
                assert np.array_equal(found["reduce"], total if rank == 1 else arrays[rank])
                part = np.sum(stacks, axis=0, dtype=kind).reshape(3, length)[rank]
                assert np.array_equal(found["scatter"].reshape(-1), part)
                assert np.array_equal(found["gather"], np.stack(arrays))
                assert np.array_equal(found["broadcast"], arrays[2])
                if rank == 2:
                    assert np.array_equal(found["received"], arrays[0])


def test_mean_and_arrays_that_are_not_contiguous(members: list[Any]) -> None:
    def mean(group: collective.Group) -> Any:
        table = np.full((4, 6), float(group.rank))
        group.allreduce(table[:, ::2], "mean")
        return table

    for rank, table in enumerate(run_all(members, mean)):
        assert (table[:, ::2] == 1.0).all() and (table[:, 1::2] == rank).all()


def test_other_buffers_need_no_numpy(members: list[Any]) -> None:
    def reduce_bytes(group: collective.Group) -> bytes:
        return bytes(group.allreduce(bytearray([group.rank, 1])))

    assert run_all(members, reduce_bytes) == [bytes([3, 3])] * 3


def test_torch_tensors_are_used_in_place(members: list[Any]) -> None:
    pytest.importorskip("torch")

    def tensors(group: collective.Group) -> list[Any]:
        import torch

        found = []
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
            tensor = torch.full((3, 5), group.rank + 1).to(kind)
            assert group.allreduce(tensor) is tensor
            assert group.allreduce(tensor.t()[1:], "max").shape == (4, 3)
            found.append(tensor.float().unique().tolist())
        found.append(group.allgather(torch.tensor(group.rank)).tolist())
        parameter = torch.nn.Parameter(torch.ones(2))
        group.allreduce(parameter)
        found.append(parameter.tolist())
        return found

    assert run_all(members, tensors) == [[[6.0]] * 4 + [[0, 1, 2], [3.0, 3.0]]] * 3


def test_bad_arguments_are_named_and_harm_nothing(members: list[Any]) -> None:
    def refusals(group: collective.Group) -> list[str]:
        fixed = np.zeros(3)
        fixed.flags.writeable = False
        found = []
        for attempt in (
            lambda: group.allreduce(np.zeros(2), "median"),
            lambda: group.allreduce(np.zeros(2, "int32"), "mean"),
            lambda: group.allreduce(np.zeros(2, "complex64")),
            lambda: group.allreduce([1, 2]),
            lambda: group.allreduce(fixed),
            lambda: group.allreduce(np.zeros(2), out=np.zeros(3)),
            lambda: group.allreduce(np.zeros(2), out=np.zeros(2, "float32")),
            lambda: group.broadcast(np.zeros(2), root=3),
            lambda: group.send(np.zeros(2), to=group.rank),
            lambda: group.reduce_scatter(np.zeros(4)),
            lambda: group.allgather(np.zeros(2), out=np.zeros(7)),
        ):
            try:
                attempt()
            except (TypeError, ValueError) as error:
                found.append(str(error))
        assert group.allreduce(np.ones(1))[0] == 3
        return found

    for found in run_all(members, refusals):
        words = ["median", "mean of int32", "Zf", "list", "read-only", "24", "float32", "below 3", "itself"]
        for text, word in zip(found, [*words, "divided", "7"], strict=True):
            assert word in text, (word, text)


def test_members_that_disagree_are_told_how(members: list[Any]) -> None:
    refs = [
        members[0].error.remote(lambda group: group.allreduce(np.zeros(4, "float32"))),
        members[1].error.remote(lambda group: group.allreduce(np.zeros(5, "float32"))),
        members[2].error.remote(lambda group: group.allreduce(np.zeros(4, "float32"))),
    ]
    for kind, text, rank in get(refs):
        assert kind == "MismatchError" and rank == 1, text
        assert "of 5 float32" in text and "of 4 float32" in text and "hint:" in text


def test_a_killed_member_is_named_and_the_others_regroup(session: Any) -> None:
    members = make_group("killed", 3)
    pids = run_all(members, lambda group: os.getpid())
    waiting = [members[rank].error.remote(lambda group: group.barrier()) for rank in (0, 2)]
    os.kill(pids[1], signal.SIGKILL)
    for kind, text, rank in get(waiting):
        assert kind == "MemberDiedError" and rank == 1
        assert f"rank 1 is gone: its process (pid {pids[1]}) has ended" in text
    left = [members[0], members[2]]
    assert get([member.regroup.remote() for member in left]) == [(0, 2), (1, 2)]
    sums = run_all(left, lambda group: group.allreduce(np.ones(3)).tolist())
    assert sums == [[2.0] * 3] * 2
    # The first member has made the meeting; the others do without it.
    os.kill(run_all(left, lambda group: os.getpid())[0], signal.SIGKILL)
    kind, _, rank = get(left[1].error.remote(lambda group: group.barrier()))
    assert kind == "MemberDiedError" and rank == 0
    assert get(left[1].regroup.remote()) == (0, 1)


def test_a_late_member_is_named_after_the_timeout(session: Any) -> None:
    members = make_group("late", 2)

    def hurry(group: collective.Group) -> None:
        group.timeout = 0.2
        group.barrier()

    kind, text, _ = get(members[0].error.remote(hurry))
    assert kind == "CollectiveTimeoutError" and "no sign of rank 1" in text
    assert get(members[1].error.remote(lambda group: group.barrier()))[0] == "CollectiveTimeoutError"
    assert sorted(get([member.regroup.remote() for member in members])) == [(0, 2), (1, 2)]


def test_tasks_and_the_driver_are_members(session: Any) -> None:
    @aktis.remote(num_cpus=0)
    def task(rank: int) -> float:
        with collective.init_group("mixed", 3, rank) as group:
            return float(group.allreduce(np.array([1.0]))[0])

    refs = [task.remote(rank) for rank in (1, 2)]
    with collective.init_group("mixed", 3, 0) as group:
        assert group.allreduce(np.array([1.0]))[0] == 3
    assert get(refs) == [3.0, 3.0]


def test_a_group_that_is_never_complete_says_who_is_missing(session: Any) -> None:
    with pytest.raises(TimeoutError, match=r"no sign of rank 1, 2 within 0.3 s"):
        collective.init_group("lonely", 3, 0, timeout=0.3)
    for arguments, word in (((2, 2), "rank"), ((0, 0), "world_size"), ((2, -1), "rank")):
        with pytest.raises(ValueError, match=word):
            collective.init_group("wrong", *arguments)
    with pytest.raises(TypeError, match="integer"):
        collective.init_group("wrong", 2, "0")  # type: ignore[arg-type]


def test_functions_with_the_names_of_ray(session: Any) -> None:
    actors = [Caller.options(num_cpus=0).remote() for _ in range(2)]

    def use(rank: int, declared: bool) -> list[Any]:
        if not declared:
            collective.init_collective_group(2, rank, "gloo", "names")
        name = "declared" if declared else "names"
        array = np.array([rank, 1.0])
        collective.allreduce(array, name)
        found: list[Any] = [
            array.tolist(),
            collective.get_rank(name),
            collective.get_collective_group_size(name),
        ]
        parts = [np.zeros(2), np.zeros(2)]
        collective.allgather(parts, array, name)
        collective.reducescatter(array, parts, name, collective.ReduceOp.MAX)
        collective.broadcast(array, 0, name)
        collective.reduce(array, 1, name)
        if rank == 0:
            collective.send(array, 1, name)
        else:
            collective.recv(array, 0, name)
        collective.barrier(name)
        found.append(array.tolist())
        collective.destroy_collective_group(name)
        return [*found, collective.get_rank(name)]

    collective.create_collective_group(actors, 2, [0, 1], group_name="declared")
    for declared in (False, True):
        found = get([actor.call.remote(use, rank, declared) for rank, actor in enumerate(actors)])
        assert found == [[[1.0, 2.0], rank, 2, [1.0, 2.0], -1] for rank in range(2)]
    with pytest.raises(RuntimeError, match="not in a group 'other'"):
        collective.allreduce(np.zeros(1), "other")


def test_ray_util_collective_is_this(run_script: Callable[..., Any]) -> None:
    done = run_script("""
        import aktis.compat
        import aktis.collective
        import ray.util.collective as collective
        from ray.util.collective.types import ReduceOp

        assert collective.allreduce is aktis.collective.allreduce and ReduceOp.SUM == "sum"
        print("same")
    """)
    assert done.stdout == "same\n"


def test_an_interrupt_ends_an_operation(session: Any) -> None:
    member = Member.remote()
    joined = member.join.remote("interrupted", 2, 1)
    group = collective.init_group("interrupted", 2, 0, timeout=20)
    get(joined)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        group.barrier()
    timer.join()
    kind, text, _ = get(member.error.remote(lambda group: group.barrier()))
    assert kind == "CollectiveError" and "rank 0 was interrupted" in text


def test_a_cancelled_task_stops_waiting(session: Any, latch: Latch, tmp_path: Path) -> None:
    interrupted = tmp_path / "interrupted"

    @aktis.remote(num_cpus=0, max_retries=0)
    def task(rank: int) -> str:
        group = collective.init_group("cancelled", 2, rank, timeout=20)
        try:
            if rank == 1:
                latch.arrive()
                try:
                    group.barrier()
                finally:
                    interrupted.touch()
            latch.wait()
            group.barrier()
        except collective.CollectiveError as error:
            return str(error)
        return "done"

    waits, told = task.remote(1), task.remote(0)
    latch.wait_for_arrivals(2)
    aktis.cancel(waits)
    with pytest.raises(aktis.exceptions.TaskCancelledError):
        get(waits)
    # The caller learns of the end of a cancelled task before the task itself does.
    wait_until(interrupted.exists, what="the interrupt")
    latch.open()
    assert "rank 1 was interrupted" in get(told)


def test_other_threads_run_while_a_member_waits(session: Any) -> None:
    members = make_group("threads", 2)

    def meet_by_thread(group: collective.Group, arrived: str) -> str:
        """Another thread of this process lets the other member come."""
        threading.Thread(target=Path(arrived).touch).start()
        group.barrier()
        return "met"

    def come_later(group: collective.Group, arrived: str) -> str:
        wait_until(Path(arrived).exists)
        group.barrier()
        return "met"

    with tempfile.TemporaryDirectory() as folder:
        arrived = f"{folder}/arrived"
        refs = [members[0].run.remote(meet_by_thread, arrived), members[1].run.remote(come_later, arrived)]
        assert get(refs) == ["met", "met"]


# --- two nodes ------------------------------------------------------------------------------------


@pytest.fixture
def two_nodes() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"node0": 10}})
    cluster.add_node(num_cpus=2, resources={"node1": 10})
    cluster.wait_for_nodes()
    aktis.init(address=cluster.address)
    yield cluster
    aktis.shutdown()
    cluster.shutdown()


def on_two_nodes(name: str, size: int) -> list[Any]:
    return make_group(name, size, lambda rank: {"resources": {f"node{rank % 2}": 1}})


def test_a_group_spans_nodes(two_nodes: Cluster) -> None:
    members = on_two_nodes("spans", 4)

    def operations(group: collective.Group, length: int) -> list[Any]:
        own = np.arange(length, dtype="float64") + group.rank
        total = group.allreduce(own.copy())
        mean = group.allreduce(own.copy(), "mean")
        gathered = group.allgather(own)
        scattered = group.reduce_scatter(gathered.copy(), "max")
        sent = group.broadcast(own.copy(), root=3)
        reduced = group.reduce(own.copy(), root=3)
        if group.rank == 1:
            group.send(own, to=2)
        if group.rank == 2:
            assert np.array_equal(group.recv(np.empty(length), source=1), own - 1)
        group.barrier()
        return [group.machines, total, mean, gathered, scattered, sent, reduced]

    for length in (1, 1000, 400_000):
        plain = np.arange(length, dtype="float64")
        for rank, found in enumerate(run_all(members, operations, length)):
            machines, total, mean, gathered, scattered, sent, reduced = found
            assert machines == 2
            assert np.array_equal(total, plain * 4 + 6) and np.array_equal(mean, plain + 1.5)
            assert all(np.array_equal(gathered[other], plain + other) for other in range(4))
            assert np.array_equal(scattered, gathered[rank : rank + 1]) and np.array_equal(sent, plain + 3)
            assert np.array_equal(reduced, plain * 4 + 6 if rank == 3 else plain + rank)


def test_a_member_killed_on_another_node_is_named(two_nodes: Cluster) -> None:
    members = on_two_nodes("killed apart", 4)
    pids = run_all(members, lambda group: os.getpid())
    # Rank 1 speaks for its node, rank 3 does not.
    for victim, left in ((3, [0, 1, 2]), (1, [0, 2])):
        waiting = [members[rank].error.remote(lambda group: group.allreduce(np.ones(10))) for rank in left]
        os.kill(pids[victim], signal.SIGKILL)
        for kind, text, rank in get(waiting):
            assert kind == "MemberDiedError" and rank == victim, text
        assert sorted(get([members[rank].regroup.remote() for rank in left]))[0] == (0, len(left))
        sums = run_all([members[rank] for rank in left], lambda group: group.allreduce(np.ones(1))[0])
        assert sums == [len(left)] * len(left)


def test_nothing_is_left_in_shared_memory(session: Any) -> None:
    def names() -> set[str]:
        return {path.name for path in Path("/dev/shm").iterdir()} if Path("/dev/shm").is_dir() else set()

    before = names()
    members = make_group("tidy", 2)
    pids = run_all(members, lambda group: (group.allreduce(np.ones(1_000_000)), os.getpid())[1])
    assert names() <= before
    lines = Path("/proc/net/unix").read_text().splitlines()
    seats = {f"socket:[{line.split()[6]}]" for line in lines if "aktis-collective-" in line}
    for pid in pids:
        files = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert not files & seats, "seats are closed once all have joined"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in pids))
    assert names() <= before
