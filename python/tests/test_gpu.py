"""GPUs: which one a task or actor gets, what it sees of the others, and how many threads it may use.

No GPU is needed: they are counted and named, nothing else.
"""

import os
from collections import Counter
from typing import Any

import pytest

import aktis
from aktis.util.placement_group import placement_group
from aktis.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from support import Latch, wait_until

VARIABLE = "CUDA_VISIBLE_DEVICES"

pytestmark = pytest.mark.usefixtures("no_session")


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@aktis.remote
def seen(latch: Latch | None = None) -> tuple[list[Any], str | None, int]:
    """The GPUs that a task is told of, those that its libraries see, and its process."""
    if latch is not None:
        latch.wait()
    return aktis.get_gpu_ids(), os.environ.get(VARIABLE), os.getpid()


@aktis.remote(num_gpus=1)
class Holder:
    def __init__(self) -> None:
        self.first = aktis.get_gpu_ids()

    def seen(self) -> tuple[list[Any], list[Any], str | None]:
        return self.first, aktis.get_gpu_ids(), os.environ.get(VARIABLE)

    def pid(self) -> int:
        return os.getpid()


@aktis.remote(num_gpus=1)
class AsyncHolder:
    async def seen(self) -> tuple[list[Any], str | None]:
        return aktis.get_gpu_ids(), os.environ.get(VARIABLE)


def together(latch: Latch, amounts: list[float]) -> list[tuple[list[Any], str | None, int]]:
    """What tasks see that need these amounts and run at the same time."""
    refs = [seen.options(num_cpus=0, num_gpus=amount).remote(latch) for amount in amounts]
    latch.wait_for_arrivals(len(amounts))
    latch.open()
    return aktis.get(refs)


# --- which GPU --------------------------------------------------------------------------------


def test_tasks_at_the_same_time_have_different_gpus(latch: Latch) -> None:
    aktis.init(num_cpus=1, num_gpus=3)
    found = together(latch, [1, 1, 1])
    assert sorted(ids[0] for ids, _, _ in found) == [0, 1, 2]
    for ids, visible, _ in found:
        assert ids == [int(visible or "-1")]


def test_a_task_may_have_several() -> None:
    aktis.init(num_cpus=1, num_gpus=3)
    ids, visible, _ = aktis.get(seen.options(num_gpus=2).remote())
    assert ids == [0, 1] and visible == "0,1"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("4,7", [4, 7]),
        (" 5 , 2 ", [5, 2]),
        ("GPU-7f,GPU-08", ["GPU-7f", "GPU-08"]),
        ("MIG-1,3", ["MIG-1", 3]),
    ],
)
def test_gpus_are_named_as_the_driver_names_them(
    monkeypatch: pytest.MonkeyPatch, latch: Latch, names: str, expected: list[Any]
) -> None:
    monkeypatch.setenv(VARIABLE, names)
    aktis.init(num_cpus=1)
    assert aktis.cluster_resources()["GPU"] == 2
    found = together(latch, [1, 1])
    assert sorted((ids[0] for ids, _, _ in found), key=str) == sorted(expected, key=str)
    assert all(visible == str(ids[0]) for ids, visible, _ in found)


def test_fewer_may_be_offered_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "4,7")
    aktis.init(num_cpus=1, num_gpus=1)
    assert aktis.get(seen.options(num_gpus=1).remote())[:2] == ([4], "4")


@pytest.mark.parametrize("names", ["4", "", "-1"])
def test_more_cannot_be_offered_than_the_driver_may_use(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    monkeypatch.setenv(VARIABLE, names)
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES") as caught:
        aktis.init(num_cpus=1, num_gpus=2)
    assert "hint: " in str(caught.value)
    assert not aktis.is_initialized()


def test_the_driver_has_none_of_its_own() -> None:
    assert aktis.get_gpu_ids() == []
    aktis.init(num_cpus=1, num_gpus=1)
    assert aktis.get_gpu_ids() == []
    assert VARIABLE not in os.environ


def test_the_context_tells_it_too() -> None:
    aktis.init(num_cpus=1, num_gpus=2)

    @aktis.remote(num_gpus=2)
    def look() -> tuple[Any, Any]:
        here = aktis.get_runtime_context()
        return {"GPU": here.get_accelerator_ids()["GPU"]}, here.get_assigned_resources()

    ids, resources = aktis.get(look.remote())
    assert ids == {"GPU": ["0", "1"]}
    assert resources == {"CPU": 1.0, "GPU": 2.0}


# --- parts of GPUs ----------------------------------------------------------------------------


def test_parts_share_a_gpu(latch: Latch) -> None:
    aktis.init(num_cpus=1, num_gpus=2)
    found = together(latch, [0.5, 0.5, 0.5, 0.5])
    assert Counter(ids[0] for ids, _, _ in found) == {0: 2, 1: 2}
    assert len({pid for _, _, pid in found}) == 4


def test_parts_leave_whole_ones_free(latch: Latch) -> None:
    aktis.init(num_cpus=1, num_gpus=2)
    found = together(latch, [0.25, 0.25, 0.25, 1])
    assert [ids for ids, _, _ in found] == [[0], [0], [0], [1]]


def test_parts_of_two_gpus_do_not_make_a_whole_one(latch: Latch) -> None:
    aktis.init(num_cpus=1, num_gpus=2)
    # Each is on a GPU of its own: 0.8 of a GPU is free, but no whole one.
    parts = [seen.options(num_cpus=0, num_gpus=0.6).remote(latch) for _ in range(2)]
    latch.wait_for_arrivals(2)
    small = seen.options(num_cpus=0, num_gpus=0.4).remote()
    assert aktis.get(small)[0] in ([0], [1]), "a part that fits runs at once"
    whole = seen.options(num_cpus=0, num_gpus=1).remote()
    assert aktis.wait([whole], timeout=0.1)[0] == []
    latch.open()
    assert aktis.get(whole)[0] in ([0], [1])
    assert {ids[0] for ids, _, _ in aktis.get(parts)} == {0, 1}


def test_what_is_held_is_not_available(latch: Latch) -> None:
    aktis.init(num_cpus=1, num_gpus=2)
    ref = seen.options(num_gpus=0.25).remote(latch)
    latch.wait_for_arrivals(1)
    assert aktis.available_resources()["GPU"] == 1.75
    latch.open()
    aktis.get(ref)
    wait_until(lambda: aktis.available_resources().get("GPU") == 2)


# --- workers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_calls", [None, 0, 5])
def test_a_worker_that_had_a_gpu_runs_nothing_without_one(max_calls: int | None) -> None:
    aktis.init(num_cpus=2, num_gpus=1)
    options = {} if max_calls is None else {"max_calls": max_calls}
    with_gpu = {aktis.get(seen.options(num_gpus=1, **options).remote())[2] for _ in range(3)}
    without = aktis.get([seen.remote() for _ in range(20)])
    assert not with_gpu & {pid for _, _, pid in without}


def test_a_worker_with_a_gpu_ends_after_its_task_unless_it_is_to_be_kept() -> None:
    aktis.init(num_cpus=2, num_gpus=1)
    # What a library holds of the GPU's memory goes with the process.
    assert len({aktis.get(seen.options(num_gpus=1).remote())[2] for _ in range(3)}) == 3
    assert len({aktis.get(seen.options(num_gpus=1, max_calls=0).remote())[2] for _ in range(3)}) == 1


def test_a_task_without_a_gpu_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "4,7")
    aktis.init(num_cpus=2)
    assert aktis.get(seen.remote())[:2] == ([], "")

    @aktis.remote(num_gpus=1)
    def parent() -> Any:
        return aktis.get(seen.remote()), aktis.get_gpu_ids()

    (ids, visible, _), own = aktis.get(parent.remote())
    assert (ids, visible, own) == ([], "", [4]), "what a task has, its children do not"


def test_the_users_own_choice_counts() -> None:
    aktis.init(num_cpus=2, num_gpus=2)
    chosen = {"env_vars": {VARIABLE: "1"}}
    assert aktis.get(seen.options(num_gpus=1, runtime_env=chosen).remote())[1] == "1"
    assert aktis.get(seen.options(runtime_env=chosen).remote())[1] == "1"


def test_children_of_a_worker_see_the_same() -> None:
    aktis.init(num_cpus=1, num_gpus=2)

    @aktis.remote(num_gpus=2)
    def shell() -> str:
        import subprocess

        return subprocess.check_output(["sh", "-c", f"echo ${VARIABLE}"], text=True).strip()

    assert aktis.get(shell.remote()) == "0,1"


# --- actors and groups ------------------------------------------------------------------------


def test_actors_hold_their_gpus_for_life() -> None:
    aktis.init(num_cpus=1, num_gpus=2)
    first, second = Holder.remote(), Holder.remote()
    found = aktis.get([first.seen.remote(), second.seen.remote()])
    assert sorted(ids[0] for ids, _, _ in found) == [0, 1]
    for first_ids, ids, visible in found:
        assert first_ids == ids and visible == str(ids[0])
    assert "GPU" not in aktis.available_resources()
    third = AsyncHolder.remote()
    waiting = third.seen.remote()
    assert aktis.wait([waiting], timeout=0.1)[0] == []
    freed = found[0][0]
    aktis.kill(first)
    assert aktis.get(waiting) == (freed, str(freed[0]))


def test_threads_of_user_code_know_whom_they_work_for() -> None:
    aktis.init(num_cpus=1, num_gpus=2)

    def look() -> tuple[Any, ...]:
        here = aktis.get_runtime_context()
        return aktis.get_gpu_ids(), here.get_actor_id(), here.get_assigned_resources()

    def look_aside() -> tuple[Any, ...]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(look).result()

    @aktis.remote(num_gpus=2)
    def task() -> Any:
        return look(), look_aside()

    class Plain:
        def look(self) -> Any:
            return look(), look_aside()

    class Async:
        async def look(self) -> Any:
            import asyncio

            first = look()
            await asyncio.sleep(0)
            assert first == look() == await asyncio.to_thread(look)
            return first, look_aside()

    here, aside = aktis.get(task.remote())
    assert here == aside == ([0, 1], None, {"CPU": 1.0, "GPU": 2.0})
    for cls in (Plain, Async):
        actor = aktis.remote(num_gpus=1)(cls).remote()
        here, aside = aktis.get(actor.look.remote())
        assert here == aside
        assert len(here[0]) == 1 and here[1:] == (actor._actor_id.hex(), {"GPU": 1.0})


def test_a_restarted_actor_has_a_gpu_again() -> None:
    aktis.init(num_cpus=1, num_gpus=2)
    holder = Holder.options(max_restarts=1, max_task_retries=-1).remote()
    other = Holder.remote()
    (taken, _, _), pid = aktis.get(other.seen.remote()), aktis.get(holder.pid.remote())
    os.kill(pid, 9)
    wait_until(lambda: aktis.get(holder.pid.remote()) != pid)
    first, ids, visible = aktis.get(holder.seen.remote())
    assert first == ids == [1 - taken[0]] and visible == str(ids[0])


def test_actors_may_share_one() -> None:
    aktis.init(num_cpus=1, num_gpus=1)
    holders = [Holder.options(num_gpus=0.25).remote() for _ in range(4)]
    assert [ids for _, ids, _ in aktis.get([holder.seen.remote() for holder in holders])] == [[0]] * 4


def test_bundles_have_gpus_of_their_own() -> None:
    aktis.init(num_cpus=2, num_gpus=2)
    group = placement_group([{"CPU": 1, "GPU": 1}, {"GPU": 1}])
    aktis.get(group.ready(), timeout=20)

    def inside(bundle: int) -> dict[str, Any]:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        return {"scheduling_strategy": strategy, "num_cpus": 0}

    first = aktis.get(seen.options(num_gpus=1, **inside(0)).remote())[:2]
    second = aktis.get(seen.options(num_gpus=1, **inside(1)).remote())[:2]
    assert {first[1], second[1]} == {"0", "1"}
    parts = [seen.options(num_gpus=0.5, **inside(0)).remote() for _ in range(4)]
    assert {visible for _, visible, _ in aktis.get(parts)} == {first[1]}
    outside = seen.options(num_cpus=0, num_gpus=1).remote()
    assert aktis.wait([outside], timeout=0.1)[0] == []


# --- threads ----------------------------------------------------------------------------------


@aktis.remote
def threads() -> tuple[str | None, int]:
    return os.environ.get("OMP_NUM_THREADS"), os.getpid()


@aktis.remote
class Threads:
    def count(self) -> str | None:
        return os.environ.get("OMP_NUM_THREADS")


def test_threads_follow_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    aktis.init(num_cpus=4, num_gpus=1)
    one, pid = aktis.get(threads.remote())
    three, other = aktis.get(threads.options(num_cpus=3).remote())
    assert (one, three) == ("1", "3")
    assert pid != other, "a library reads the variable once"
    assert aktis.get(threads.options(num_cpus=0.5).remote())[0] == "1"
    assert aktis.get(threads.options(num_cpus=0, num_gpus=1).remote())[0] == "1"
    assert aktis.get(Threads.remote().count.remote()) == "1"
    assert aktis.get(Threads.options(num_cpus=2).remote().count.remote()) == "2"
    assert "OMP_NUM_THREADS" not in os.environ


def test_the_users_number_of_threads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    aktis.init(num_cpus=2)
    assert aktis.get(threads.options(num_cpus=2).remote())[0] == "5"
    chosen = {"env_vars": {"OMP_NUM_THREADS": "7"}}
    assert aktis.get(threads.options(runtime_env=chosen).remote())[0] == "7"
    assert aktis.get(Threads.options(num_cpus=2, runtime_env=chosen).remote().count.remote()) == "7"
