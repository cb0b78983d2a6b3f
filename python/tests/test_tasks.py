"""Tasks and objects: exceptions, arguments, returns, references, arrays, workers (behaviours 1 to 11)."""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from support import Latch, children_of, identity, wait_until

pytestmark = pytest.mark.usefixtures("shared_session")


@aktis.remote
def kind(value: Any) -> str:
    return type(value).__name__


# --- 1: exceptions --------------------------------------------------------------------------------


class Trouble(Exception):
    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"{code} in {where}")
        self.code = code
        self.where = where

    def hint(self) -> str:
        return f"{self.where}: {self.code}"


class NotAnException(BaseException):
    pass


@aktis.remote
def fails(error: BaseException) -> None:
    raise error


def test_a_failed_task_raises_the_users_own_exception() -> None:
    with pytest.raises(Trouble) as caught:
        aktis.get(fails.remote(Trouble(3, where="here")))
    error: Any = caught.value
    assert isinstance(error, exceptions.TaskError)
    assert (error.code, error.where, error.hint()) == (3, "here", "here: 3")
    assert type(error.cause) is Trouble
    assert error.cause.hint() == "here: 3"


def test_the_traceback_shows_the_remote_frames() -> None:
    def inner(number: int) -> None:
        raise ValueError(f"number {number}")

    @aktis.remote
    def outermost() -> int:
        inner(7)
        return os.getpid()

    with pytest.raises(ValueError) as caught:
        aktis.get(outermost.remote())
    text = str(caught.value)
    assert "outermost() (pid=" in text
    assert f"(pid={os.getpid()}" not in text
    assert "in outermost" in text
    assert "in inner" in text
    assert text.rstrip().endswith("ValueError: number 7")


def test_other_kinds_of_exceptions() -> None:
    with pytest.raises(NotAnException) as base:
        aktis.get(fails.remote(NotAnException("x")))
    assert isinstance(base.value, exceptions.TaskError)
    seen = []
    try:
        aktis.get(fails.remote(ExceptionGroup("both", [ValueError(1), Trouble(2, where="group")])))
    except* ValueError as group:
        seen.append(type(group.exceptions[0]))
    except* Trouble as group:
        seen.append(type(group.exceptions[0]))
    assert seen == [ValueError, Trouble]


def test_exit_and_interrupt() -> None:
    @aktis.remote(max_retries=0)
    def leaves() -> None:
        sys.exit(3)

    @aktis.remote(max_retries=0)
    def interrupts() -> None:
        raise KeyboardInterrupt

    with pytest.raises(exceptions.WorkerCrashedError, match="3"):
        aktis.get(leaves.remote())
    with pytest.raises(exceptions.TaskCancelledError):
        aktis.get(interrupts.remote())
    assert aktis.get(identity.remote(1)) == 1


def test_exceptions_that_cannot_be_pickled_arrive_as_text() -> None:
    @aktis.remote
    def fails_with_lock() -> None:
        class Locked(Exception):
            lock = None

        error = Locked("cannot travel")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(exceptions.TaskError, match="Locked: cannot travel"):
        aktis.get(fails_with_lock.remote())


def test_results_that_cannot_be_pickled_are_named() -> None:
    @aktis.remote
    def gives_lock() -> Any:
        return {"inside": threading.Lock()}

    with pytest.raises(TypeError, match="inside"):
        aktis.get(gives_lock.remote())


def test_a_failure_passes_through_other_tasks() -> None:
    @aktis.remote
    def passes_on() -> None:
        aktis.get(fails.remote(Trouble(1, where="deep")))

    with pytest.raises(Trouble) as caught:
        aktis.get(passes_on.remote())
    assert caught.value.hint() == "deep: 1"
    assert "fails()" in str(caught.value)
    assert "passes_on()" in str(caught.value)


def test_a_failed_argument_fails_the_task() -> None:
    with pytest.raises(Trouble) as caught:
        aktis.get(identity.remote(identity.remote(fails.remote(Trouble(1, where="first")))))
    assert caught.value.code == 1
    assert "identity()" in str(caught.value)


def test_recursion_errors_are_told() -> None:
    @aktis.remote
    def deep(n: int) -> int:
        def descend(n: int) -> int:
            return descend(n + 1) + 1

        return descend(n)

    with pytest.raises(RecursionError):
        aktis.get(deep.remote(0))


# --- 2: arguments ---------------------------------------------------------------------------------


def test_arguments_that_do_not_fit_are_refused_at_the_call() -> None:
    @aktis.remote
    def takes(a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    for args, kwargs in [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"z": 1}), ((), {"b": 1})]:
        with pytest.raises(TypeError, match=r"takes\(\)"):
            takes.remote(*args, **kwargs)
    assert aktis.get(takes.remote(1)) == (1, 2, 3)
    assert aktis.get(takes.remote(1, c=5, b=4)) == (1, 4, 5)
    assert aktis.get(takes.remote(a=1)) == (1, 2, 3)


def test_all_kinds_of_parameters() -> None:
    @aktis.remote
    def variadic(a: int, *args: int, key: int, **more: int) -> Any:
        return a, args, key, more

    assert aktis.get(variadic.remote(1, 2, 3, key=4, x=5)) == (1, (2, 3), 4, {"x": 5})
    with pytest.raises(TypeError, match="key"):
        variadic.remote(1, 2)


def test_arguments_that_cannot_be_pickled_are_named() -> None:
    with pytest.raises(TypeError, match=r"\['key'\]"):
        identity.remote({"key": threading.Lock()})


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        2**63,
        2**200,
        1.5,
        float("inf"),
        "text",
        "ä€\U0001f600",
        "\ud800",
        "x" * 100_000,
        b"",
        b"bytes",
        bytes(1_000_000),
        (),
        (1, "a", None, (2.0, b"x")),
        [1, [2, [3, [4, [5]]]]],
        list(range(100)),
        {"a": 1, 2: {3}},
        {1, 2},
        range(3),
        bytearray(b"abc"),
        complex(1, 2),
        Path("/x"),
        int,
        ValueError,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_values_come_back_as_they_went(value: Any) -> None:
    found = aktis.get(identity.remote(value))
    assert found == value
    assert type(found) is type(value)
    assert aktis.get(aktis.put(value)) == value


def test_subclasses_of_simple_types_stay_what_they_are() -> None:
    class Number(int):
        pass

    class Text(str):
        pass

    assert type(aktis.get(identity.remote(Number(3)))).__name__ == "Number"
    assert type(aktis.get(identity.remote([Text("a")]))[0]).__name__ == "Text"


# --- 4: number of returns -------------------------------------------------------------------------


def test_number_of_returns() -> None:
    @aktis.remote(num_returns=2)
    def two(count: int) -> list[int]:
        return list(range(count))

    first, second = two.remote(2)
    assert aktis.get([first, second]) == [0, 1]
    for wrong in (1, 3):
        for ref in two.remote(wrong):
            with pytest.raises(ValueError, match="num_returns"):
                aktis.get(ref)
    assert two.options(num_returns=0).remote(2) is None
    assert aktis.get(two.options(num_returns=1).remote(2)) == [0, 1]
    assert aktis.get(two.options(num_returns=3).remote(3)) == [0, 1, 2]
    # As many as a shuffle has partitions, also to another node.
    assert aktis.get(two.options(num_returns=2000).remote(2000)) == list(range(2000))


def test_a_failure_is_the_failure_of_all_returns() -> None:
    for ref in fails.options(num_returns=3).remote(ValueError("x")):
        with pytest.raises(ValueError):
            aktis.get(ref)


# --- 5: references as arguments -------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1_000_000], ids=["small", "large"])
def test_references_as_arguments(size: int) -> None:
    @aktis.remote
    class Holder:
        def kinds(self, direct: Any, inside: list[Any]) -> tuple[str, str, int]:
            return type(direct).__name__, type(inside[0]).__name__, len(aktis.get(inside[0]))

    @aktis.remote
    def kinds(direct: Any, inside: list[Any], *, named: Any) -> tuple[str, str, str, int]:
        return (
            type(direct).__name__,
            type(inside[0]).__name__,
            type(named).__name__,
            len(aktis.get(inside[0])),
        )

    ref = aktis.put(bytes(size))
    made = identity.remote(bytes(size))
    holder = Holder.remote()
    for each in (ref, made):
        assert aktis.get(kinds.remote(each, [each], named=each)) == ("bytes", "ObjectRef", "bytes", size)
        assert aktis.get(holder.kinds.remote(each, [each])) == ("bytes", "ObjectRef", size)


def test_a_reference_to_a_reference() -> None:
    inner = aktis.put("value")
    outer = aktis.put([inner])
    found = aktis.get(outer)[0]
    assert found == inner
    assert aktis.get(found) == "value"
    with pytest.raises(TypeError, match="put"):
        aktis.put(inner)


def test_tasks_submit_tasks() -> None:
    @aktis.remote
    def fibonacci(n: int) -> int:
        if n < 2:
            return n
        return sum(aktis.get([fibonacci.remote(n - 1), fibonacci.remote(n - 2)]))

    assert aktis.get(fibonacci.remote(6)) == 8


# --- 6: blocked workers ---------------------------------------------------------------------------


def test_a_task_that_waits_gives_its_cpu_back() -> None:
    @aktis.remote
    def child() -> int:
        return 1

    @aktis.remote
    def parent(depth: int) -> int:
        if depth == 0:
            return aktis.get(child.remote())
        return aktis.get(parent.remote(depth - 1)) + 1

    assert aktis.get([parent.remote(3), parent.remote(3)]) == [4, 4]


# --- 7: functions ---------------------------------------------------------------------------------


def test_functions_are_pickled_at_their_first_call() -> None:
    box = [1]

    @aktis.remote
    def reads() -> int:
        return box[0]

    box[0] = 2
    assert aktis.get(reads.remote()) == 2
    box[0] = 3
    assert aktis.get(reads.remote()) == 2, "it is pickled once"


def test_a_function_can_be_defined_again() -> None:
    found = []
    for number in range(3):

        @aktis.remote
        def function(result: int = number) -> int:
            return result

        found.append(aktis.get(function.remote()))
    assert found == [0, 1, 2]


def test_functions_and_classes_survive_a_new_session(session: Any) -> None:
    @aktis.remote
    def function() -> int:
        return 5

    @aktis.remote
    class Counter:
        def value(self) -> int:
            return 6

    assert aktis.get([function.remote(), Counter.remote().value.remote()]) == [5, 6]
    aktis.shutdown()
    aktis.init(num_cpus=2)
    assert aktis.get([function.remote(), Counter.remote().value.remote()]) == [5, 6]


def test_a_closure_that_is_too_large_is_named() -> None:
    content = bytes(96 << 20)

    @aktis.remote
    def enormous() -> int:
        return len(content)

    with pytest.raises(ValueError, match="enormous"):
        enormous.remote()


def test_functions_that_cannot_be_pickled_are_refused_by_name() -> None:
    lock = threading.Lock()

    @aktis.remote
    def locked() -> None:
        lock.acquire()

    with pytest.raises(TypeError, match=r"'locked'.*'lock'"):
        locked.remote()


def test_remote_functions_in_closures_and_arguments() -> None:
    @aktis.remote
    def calls(function: Any, value: int) -> int:
        return aktis.get(function.remote(value)) + aktis.get(identity.remote(value))

    assert aktis.get(calls.remote(identity, 4)) == 8


# --- 8: arrays ------------------------------------------------------------------------------------


def test_large_arrays_are_not_copied() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1_000_000, dtype="float64")
    ref = aktis.put(array)
    one, other = aktis.get(ref), aktis.get(ref)
    assert (one == array).all()
    assert not one.flags.writeable
    assert one.ctypes.data % 64 == 0
    assert one.ctypes.data == other.ctypes.data, "both are views of one place"
    with pytest.raises(ValueError):
        one[0] = 1
    del ref, other
    for _ in range(20):
        aktis.put(numpy.ones(1_000_000))
    assert (one == array).all(), "the object is pinned while a view lives"

    @aktis.remote
    def sees(value: Any) -> tuple[bool, int, float]:
        return value.flags.writeable, value.ctypes.data % 64, float(value.sum())

    assert aktis.get(sees.remote(array)) == (False, 0, float(array.sum()))
    assert (aktis.get(identity.remote(array)) == array).all()


# --- 9: references that are inside of something ---------------------------------------------------


def test_references_inside_of_values_keep_objects_alive() -> None:
    debug = pytest.importorskip("aktis.util.debug")
    inner = aktis.put(bytes(1_000_000))
    name = inner.hex()
    outer = aktis.put({"deep": [inner]})
    through = identity.remote([outer])
    aktis.wait([through])
    del inner
    assert len(aktis.get(aktis.get(aktis.get(through)[0])["deep"][0])) == 1_000_000
    del outer
    assert len(aktis.get(aktis.get(aktis.get(through)[0])["deep"][0])) == 1_000_000
    del through
    wait_until(lambda: name not in debug.reference_counts(), what="the inner object to be forgotten")


def test_a_reference_of_a_list_that_was_not_used_keeps_its_object() -> None:
    debug = pytest.importorskip("aktis.util.debug")
    first, second = aktis.put(bytes(1_000_000)), aktis.put(bytes(2_000_000))
    names = (first.hex(), second.hex())
    outer = aktis.put([first, second])
    kept = aktis.get(outer)[1]
    assert (kept, hash(kept), kept.hex()) == (second, hash(second), names[1])
    del first, second, outer
    assert len(aktis.get(kept)) == 2_000_000
    wait_until(lambda: names[0] not in debug.reference_counts(), what="the list to be forgotten")
    assert len(aktis.get(aktis.get(identity.remote([kept]))[0])) == 2_000_000
    del kept
    wait_until(lambda: names[1] not in debug.reference_counts(), what="the inner object to be forgotten")


def test_a_reference_of_a_list_is_passed_on_before_it_was_used() -> None:
    def read() -> list[Any]:
        return aktis.get(aktis.put([aktis.put(bytes(300_000)), identity.remote(7)]))

    assert len(aktis.get(identity.remote(read()[0]))) == 300_000
    assert aktis.get(aktis.get(identity.remote({"deep": read()}))["deep"][1]) == 7
    assert aktis.wait(read(), num_returns=2, timeout=30)[1] == []


def test_references_that_tasks_return() -> None:
    @aktis.remote
    def makes() -> Any:
        return [aktis.put(bytes(500_000)), identity.remote("small")]

    large, small = aktis.get(makes.remote())
    assert len(aktis.get(large)) == 500_000
    assert aktis.get(small) == "small"


def test_a_worker_may_keep_what_it_was_given() -> None:
    @aktis.remote
    class Keeper:
        def keep(self, refs: list[Any]) -> None:
            self.refs = refs

        def length(self) -> int:
            return len(aktis.get(self.refs[0]))

    keeper = Keeper.remote()
    ref = aktis.put(bytes(400_000))
    aktis.get(keeper.keep.remote([ref]))
    del ref
    assert aktis.get(keeper.length.remote()) == 400_000


# --- 10: threads and titles -----------------------------------------------------------------------


def test_the_number_of_threads_follows_the_cpus(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @aktis.remote
    def threads() -> str | None:
        return os.environ.get("OMP_NUM_THREADS")

    assert aktis.get(threads.remote()) == "1"
    assert aktis.get(threads.options(num_cpus=2).remote()) == "2"
    assert aktis.get(threads.options(num_cpus=0.5).remote()) == "1"
    assert aktis.get(threads.options(runtime_env={"env_vars": {"OMP_NUM_THREADS": "7"}}).remote()) == "7"
    aktis.shutdown()
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    aktis.init(num_cpus=2)
    assert aktis.get(threads.options(num_cpus=2).remote()) == "5"


def title_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def test_the_title_shows_what_runs(latch: Latch) -> None:
    @aktis.remote
    def with_a_title() -> int:
        latch.wait()
        return os.getpid()

    ref = with_a_title.remote()
    (pid,) = latch.wait_for_arrivals(1)
    assert title_of(pid).startswith("aktis::with_a_title")
    latch.open()
    assert aktis.get(ref) == pid
    wait_until(lambda: title_of(pid).startswith("aktis::IDLE"), what="the worker to be idle")


# --- 11: GPUs -------------------------------------------------------------------------------------


def test_gpus_are_handed_out_by_index(no_session: None, tmp_path: Path) -> None:
    aktis.init(num_cpus=4, num_gpus=2)

    @aktis.remote
    def gpus(latch: Latch | None) -> tuple[list[Any], str | None, int]:
        if latch is not None:
            latch.wait()
        return aktis.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()

    latch = Latch(tmp_path / "gpus")
    refs = [gpus.options(num_gpus=1).remote(latch) for _ in range(2)]
    latch.wait_for_arrivals(2)
    latch.open()
    found = aktis.get(refs)
    assert sorted(ids[0] for ids, _, _ in found) == [0, 1]
    assert all(visible == str(ids[0]) for ids, visible, _ in found)
    both, visible, _ = aktis.get(gpus.options(num_gpus=2).remote(None))
    assert sorted(both) == [0, 1]
    assert sorted((visible or "").split(",")) == ["0", "1"]
    used = {pid for _, _, pid in found}
    none = aktis.get([gpus.remote(None) for _ in range(8)])
    assert all(ids == [] for ids, _, _ in none)
    assert not used & {pid for _, _, pid in none}, "a worker that had a GPU is not used without one"


def test_max_calls_ends_a_worker() -> None:
    @aktis.remote(max_calls=1)
    def pid() -> int:
        return os.getpid()

    pids = [aktis.get(pid.remote()) for _ in range(3)]
    assert len(set(pids)) == 3
    wait_until(lambda: not set(pids) & set(children_of(os.getpid())), what="the workers to be gone")


def test_what_a_task_prints_is_seen(run_script: Any) -> None:
    done = run_script("""
        import aktis
        @aktis.remote
        def speaks():
            print("words of a worker")
        aktis.get(speaks.remote())
        aktis.shutdown()
    """)
    assert "words of a worker" in done.stdout + done.stderr


def test_the_context_of_a_task() -> None:
    @aktis.remote(name="renamed", num_cpus=2)
    def where() -> Any:
        here = aktis.get_runtime_context()
        return (
            here.get_job_id(),
            here.get_node_id(),
            here.get_task_id(),
            here.get_actor_id(),
            here.get_task_name(),
            here.get_assigned_resources(),
            here.namespace,
            here.get_worker_id(),
        )

    ref = where.remote()
    job, node, task, actor, name, resources, namespace, worker = aktis.get(ref)
    here = aktis.get_runtime_context()
    assert job == here.get_job_id()
    assert node in {node["NodeID"] for node in aktis.nodes()}
    assert task == ref.task_id().hex()
    assert actor is None
    assert name == "renamed"
    assert resources == {"CPU": 2.0}
    assert namespace == here.namespace
    assert worker != here.get_worker_id()
    assert here.get_task_id() is None


def test_timing_is_honest() -> None:
    """A task that takes long does not hold up those behind it."""
    start = time.monotonic()
    assert aktis.get([identity.remote(i) for i in range(200)]) == list(range(200))
    assert time.monotonic() - start < 20
