"""The joblib backend. Skipped without joblib."""

import os
from typing import Any

import pytest

import aktis
from support import Latch

joblib = pytest.importorskip("joblib")


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    if number == 3:
        raise KeyError("three")
    return number


@pytest.fixture(autouse=True)
def registered(shared_session: Any) -> None:
    from aktis.util.joblib import register_aktis, register_ray

    assert register_ray is register_aktis
    register_aktis()


@pytest.mark.parametrize("backend", ["aktis", "ray"])
def test_results_are_in_order(backend: str) -> None:
    with joblib.parallel_backend(backend, n_jobs=2):
        results = joblib.Parallel()(joblib.delayed(square)(number) for number in range(200))
    assert results == [number**2 for number in range(200)]


def test_work_runs_in_workers(latch: Latch) -> None:
    with joblib.parallel_backend("aktis"):
        parallel = joblib.Parallel(n_jobs=2, batch_size=1)
        latch.open()
        parallel(joblib.delayed(latch.wait)() for _ in range(4))
    assert os.getpid() not in latch.arrivals()
    assert len(latch.arrivals()) == 4


def test_exceptions_have_the_type_of_the_function() -> None:
    with joblib.parallel_backend("aktis", n_jobs=2), pytest.raises(KeyError, match="three"):
        joblib.Parallel()(joblib.delayed(fail)(number) for number in range(10))


def test_the_backend_works_after_a_failure() -> None:
    with joblib.parallel_backend("aktis", n_jobs=2):
        for _ in range(2):
            with pytest.raises(KeyError):
                joblib.Parallel()(joblib.delayed(fail)(number) for number in range(10))
            assert joblib.Parallel()(joblib.delayed(square)(number) for number in range(5)) == [
                0,
                1,
                4,
                9,
                16,
            ]


def test_generators() -> None:
    with joblib.parallel_backend("aktis", n_jobs=2):
        results = joblib.Parallel(return_as="generator")(joblib.delayed(square)(n) for n in range(20))
        assert list(results) == [n**2 for n in range(20)]


def test_nested_loops() -> None:
    def inner(number: int) -> int:
        return sum(joblib.Parallel(n_jobs=2)(joblib.delayed(square)(n) for n in range(number)))

    with joblib.parallel_backend("aktis", n_jobs=2):
        results = joblib.Parallel()(joblib.delayed(inner)(number) for number in range(5))
    assert results == [sum(n**2 for n in range(number)) for number in range(5)]


def test_number_of_jobs() -> None:
    from aktis.util.joblib.backend import AktisBackend

    backend = AktisBackend()
    assert backend.effective_n_jobs(-1) == 2
    assert backend.effective_n_jobs(-2) == 1
    assert backend.effective_n_jobs(-100) == 1
    assert backend.effective_n_jobs(8) == 8
    assert backend.effective_n_jobs(None) == 1
    with pytest.raises(ValueError):
        backend.effective_n_jobs(0)


def test_options_for_the_tasks() -> None:
    def cpus() -> Any:
        return aktis.get_runtime_context().get_assigned_resources().get("CPU")

    with joblib.parallel_backend("aktis", n_jobs=2, remote_args={"num_cpus": 2}):
        assert joblib.Parallel()(joblib.delayed(cpus)() for _ in range(3)) == [2, 2, 2]
