"""Actors that run environments: what the driver makes of an actor that dies."""

from typing import Any

import aktis
from aktis.exceptions import ActorDiedError, OutOfMemoryError, WorkerCrashedError
from aktis.rl.environments import Environment
from aktis.rl.errors import EnvironmentFault, RLError


class WorkerDied(EnvironmentFault):
    """An actor that ran environments is gone; with `faults_max` another one takes its place."""

    #: The number of the actor.
    worker: int


def spread(kind: type) -> Any:
    """A class of actors that go to one node after the other. They hold no CPU: one node has room for all."""
    return aktis.remote(kind).options(scheduling_strategy="SPREAD")


def results_of(environment: Environment, refs: list[Any], workers: list[int]) -> list[Any]:
    """The results of calls, each of the worker at the same place in `workers`.

    The death of a worker becomes a WorkerDied that names the worker and its environment.
    """
    try:
        return aktis.get(refs)
    except (ActorDiedError, WorkerCrashedError) as error:
        raise _fault(environment, *_died(refs, workers, error)) from error


def _died(refs: list[Any], workers: list[int], error: Exception) -> tuple[int, Exception]:
    """The worker whose call has failed, and why."""
    for ref, worker in zip(refs, workers, strict=True):
        try:
            aktis.get(ref, timeout=0)
        except (ActorDiedError, WorkerCrashedError) as found:
            return worker, found
        except Exception:  # still under way, or an error of the environment: not the death looked for
            continue
    return workers[0], error


def _fault(environment: Environment, worker: int, error: Exception) -> RLError:
    cause = error.__cause__
    if isinstance(cause, RLError):
        return cause
    hint = (
        "run fewer environments per worker (num_envs, actors), or ones that need less memory"
        if isinstance(error, OutOfMemoryError) or "ran out of memory" in str(error)
        else "see the worker's output; native code of an environment that crashes, or takes longer than "
        f"step_deadline={environment.step_deadline:g} s, ends its worker"
    )
    text = str(error).split("\nhint:")[0]
    fault = WorkerDied(f"{environment.name}: worker {worker}, which runs it, died: {text}\nhint: {hint}")
    fault.worker = worker
    return fault
