"""The parameter server: equal to plain descent when synchronous, and bounded by nobody when not."""

from typing import Any

import numpy
import pytest

import aktis
from aktis.train import ParameterServer
from aktis.train.parameter_server import SGD, Adam, ParameterServerTimeout


def problem() -> tuple[Any, Any]:
    generator = numpy.random.default_rng(0)
    xs = generator.normal(size=(64, 5))
    return xs, xs @ numpy.arange(5.0) + 1.0


def gradients(parameters: dict[str, Any], xs: Any, ys: Any) -> dict[str, Any]:
    errors = xs @ parameters["weights"] + parameters["bias"] - ys
    return {"weights": xs.T @ errors / len(xs), "bias": errors.mean(keepdims=True)}


START = {"weights": numpy.zeros(5), "bias": numpy.zeros(1)}


@aktis.remote(num_cpus=0.5)
def work(server: ParameterServer, worker: int, workers: int, steps: int) -> dict[str, Any]:
    xs, ys = (part[worker::workers] for part in problem())
    parameters: dict[str, Any] = server.pull()
    for _ in range(steps):
        parameters = server.push_pull(gradients(parameters, xs, ys), worker)
    return parameters


@pytest.mark.parametrize("optimizer", [SGD(0.1), SGD(0.05, momentum=0.9), Adam(0.1)], ids=str)
def test_a_synchronous_server_does_what_one_process_does(shared_session: Any, optimizer: Any) -> None:
    server = ParameterServer(START, num_shards=3, optimizer=optimizer, num_workers=2)
    one, other = aktis.get([work.remote(server, worker, 2, 20) for worker in range(2)])
    vector = numpy.zeros(6)
    state = optimizer.begin(vector)
    for step in range(1, 21):
        parts = []
        for worker in range(2):
            xs, ys = (part[worker::2] for part in problem())
            found = gradients({"weights": vector[:5], "bias": vector[5:]}, xs, ys)
            parts.append(numpy.concatenate([found["weights"], found["bias"]]))
        optimizer.apply(vector, (parts[0] + parts[1]) / 2, state, step)
    numpy.testing.assert_allclose(one["weights"], vector[:5], rtol=1e-12)
    for name in START:
        numpy.testing.assert_array_equal(one[name], other[name])


def test_an_asynchronous_server_learns(shared_session: Any) -> None:
    server = ParameterServer(START, mode="async", optimizer=SGD(0.1))
    aktis.get([work.remote(server, worker, 2, 150) for worker in range(2)])
    parameters = server.pull()
    numpy.testing.assert_allclose(parameters["weights"], numpy.arange(5.0), atol=0.1)
    assert server.step == 300


def test_a_step_names_the_workers_that_are_missing(shared_session: Any) -> None:
    server = ParameterServer([numpy.zeros(4)], num_workers=3, timeout_s=0.2)
    with pytest.raises(ParameterServerTimeout, match="no gradient came from the workers 0, 2"):
        server.push([numpy.ones(4)], worker=1)
    server.set_num_workers(1)
    [values] = server.push_pull([numpy.ones(4)], worker=1)
    assert server.step >= 1 and (values < 0).all()


def test_a_gradient_of_a_past_step_is_dropped(shared_session: Any) -> None:
    server = ParameterServer(numpy.zeros(4), num_workers=1, optimizer=SGD(1.0))
    import copy

    late = copy.copy(server)
    numpy.testing.assert_array_equal(server.push_pull(numpy.ones(4)), -numpy.ones(4))
    numpy.testing.assert_array_equal(late.push_pull(numpy.ones(4)), -numpy.ones(4))
    numpy.testing.assert_array_equal(late.push_pull(numpy.ones(4)), -2 * numpy.ones(4))


def test_a_state_is_restored(shared_session: Any) -> None:
    def fresh() -> ParameterServer:
        return ParameterServer(numpy.zeros(4), optimizer=SGD(0.1, momentum=0.9), num_workers=1)

    server = fresh()
    server.push(numpy.ones(4))
    state = server.state()
    expected = server.push_pull(numpy.ones(4))
    other = fresh()
    other.load_state(state)
    numpy.testing.assert_array_equal(other.push_pull(numpy.ones(4)), expected)
    with pytest.raises(ValueError, match="other parameters"):
        ParameterServer(numpy.zeros(5), num_workers=1).load_state(state)


def test_bad_parameters_are_refused(shared_session: Any) -> None:
    for make, text in [
        (lambda: ParameterServer({}, num_workers=1), "no parameters"),
        (lambda: ParameterServer(numpy.zeros(4)), "needs `num_workers`"),
        (lambda: ParameterServer(numpy.zeros(1), num_workers=1), "use fewer shards"),
        (lambda: ParameterServer(numpy.zeros(4), mode="both"), '"sync" or "async"'),
        (lambda: SGD(lr=0), "must be positive"),
    ]:
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(TypeError, match="floating-point"):
        ParameterServer(numpy.zeros(4, dtype=int), num_workers=1)
    server = ParameterServer({"a": numpy.zeros(4)}, num_workers=1)
    with pytest.raises(ValueError, match="a dictionary of"):
        server.push({"b": numpy.zeros(4)})
    with pytest.raises(ValueError, match="shape"):
        server.push({"a": numpy.zeros(3)})
    with pytest.raises(ValueError, match=r"gradients of worker 5 are not finite, and were not sent\nhint: "):
        server.push({"a": numpy.array([0.0, numpy.nan, 0.0, 0.0])}, worker=5)
    numpy.testing.assert_array_equal(server.pull()["a"], numpy.zeros(4))
