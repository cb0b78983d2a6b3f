"""The workers of one attempt to train: reserved together, ranked by node, and ended together."""

import contextlib
import itertools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aktis
from aktis.exceptions import (
    ActorDiedError,
    ActorError,
    AktisError,
    GetTimeoutError,
    OutOfMemoryError,
    TaskError,
)
from aktis.train.checkpoint import Checkpoint
from aktis.train.config import ScalingConfig
from aktis.train.session import Report, TrainContext
from aktis.train.storage import Staging, read_files
from aktis.train.worker import Job, Place, worker_class
from aktis.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from aktis.util.scheduling_strategies import PlacementGroupSchedulingStrategy

START_SECONDS = 120.0
"""How long workers may take to start once they have their place."""

ELASTIC_SECONDS = 1.0
"""How long an elastic run waits for room for one worker more."""

CAUSE_SECONDS = 1.0
"""How long the death of a worker may stay unknown after another worker has noticed its absence."""

NOTICE_SECONDS = 10.0
"""After how long a warning says what the run waits for."""


class WorkerFailed(AktisError):
    """Workers failed. The text names the first by rank, node and reason."""

    def __init__(
        self, message: str, failures: Mapping[int, BaseException], cause: BaseException | None
    ) -> None:
        super().__init__(message)
        self.failures = dict(failures)
        self.cause = cause


class NoRoomError(AktisError, TimeoutError):
    """The cluster has no room for the workers."""


@dataclass
class Member:
    """A worker, and where it is."""

    rank: int
    handle: Any
    place: Place
    context: TrainContext

    def __str__(self) -> str:
        return f"worker {self.rank} on {self.place}"


class WorkerGroup:
    """Workers in a placement group. A context manager: they end with it."""

    def __init__(self, scaling: ScalingConfig, staging: Staging, context: TrainContext) -> None:
        self._scaling = scaling
        self._staging = staging
        self._context = context
        self._group: PlacementGroup | None = None
        self.members: list[Member] = []

    def __enter__(self) -> "WorkerGroup":
        try:
            self._group = reserve(self._scaling)
            self._start(self._group)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all workers, and gives their resources back."""
        for member in self.members:
            with contextlib.suppress(AktisError):
                aktis.kill(member.handle)
        if self._group is not None:
            with contextlib.suppress(AktisError):
                remove_placement_group(self._group)
        self.members, self._group = [], None

    def _start(self, group: PlacementGroup) -> None:
        held = self._scaling.worker_resources
        others = {name: amount for name, amount in held.items() if name not in ("CPU", "GPU", "memory")}
        options = {
            "num_cpus": held.get("CPU", 0),
            "num_gpus": held.get("GPU", 0),
            "memory": int(held["memory"]) if "memory" in held else None,
            "resources": others or None,
            "accelerator_type": self._scaling.accelerator_type,
        }
        worker = worker_class().options(
            **{name: value for name, value in options.items() if value is not None}
        )
        handles = []
        for index in range(group.bundle_count):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            handles.append(worker.options(scheduling_strategy=strategy).remote())
        asked = [handle.place.remote(self._staging) for handle in handles]
        places: list[Place] = []
        for index, ref in enumerate(asked):
            try:
                places.append(aktis.get(ref, timeout=START_SECONDS))
            except AktisError as error:
                raise WorkerFailed(
                    f"worker {index} of {len(handles)} did not start: {reason_of(error)}",
                    {index: error},
                    error,
                ) from error
        self.members = ranked(handles, places, self._context)

    def call_all(
        self, function: Callable[..., Any], *arguments: Any, timeout: float | None = None
    ) -> list[Any]:
        """What the function gives in each worker, by rank. It is called with the worker's context first."""
        refs = [m.handle.call.remote(function, m.context, *arguments) for m in self.members]
        return self._get(refs, timeout)

    def call_first(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function gives in worker 0."""
        first = self.members[0]
        return self._get([first.handle.call.remote(function, first.context, *arguments)], START_SECONDS)[0]

    def _get(self, refs: list[Any], timeout: float | None) -> list[Any]:
        try:
            return list(aktis.get(refs, timeout=timeout))
        except GetTimeoutError:
            raise
        except (AktisError, Exception) as error:
            failures: dict[int, BaseException] = {}
            for member, ref in zip(self.members, refs):
                ready, _ = aktis.wait([ref], timeout=0)
                if ready:
                    try:
                        aktis.get(ref)
                    except Exception as own:
                        failures[member.rank] = own
            raise self._failed(failures or {0: error}) from error

    def run(
        self,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        checkpoint: Checkpoint | None,
        datasets: Mapping[str, Any],
    ) -> Iterator[Report]:
        """Runs the training function in all workers, and gives their reports as they come.

        Raises `WorkerFailed` when a worker raises or dies.
        """
        blind = [member for member in self.members if not member.place.sees_storage]
        files = aktis.put(read_files(checkpoint.path)) if checkpoint is not None and blind else None
        streams: dict[Any, Member] = {}
        for member in self.members:
            job = Job(function, arguments, member.context, self._staging, checkpoint, files, datasets)
            streams[member.handle.run.options(num_returns="streaming").remote(job)] = member
        while streams:
            stream = first_ready(streams, None)
            try:
                yield aktis.get(next(stream))
            except StopIteration:
                del streams[stream]
            except Exception as error:
                failures: dict[int, BaseException] = {streams.pop(stream).rank: error}
                yield from self._last_reports(failures, streams)
                raise self._failed(failures) from error

    def _last_reports(
        self, failures: dict[int, BaseException], streams: dict[Any, Member]
    ) -> Iterator[Report]:
        """After a failure: the reports that are under way. Adds the failures that come soon after the first.

        The exception of a worker may only say that another one is gone; that one's death is the reason, and
        may become known later.
        """
        deadline = time.monotonic() + CAUSE_SECONDS
        while streams:
            if any(is_death(failure) for failure in failures.values()):
                deadline = 0.0
            stream = first_ready(streams, max(0.0, deadline - time.monotonic()))
            if stream is None:
                return
            try:
                yield aktis.get(next(stream))
            except StopIteration:
                del streams[stream]
            except Exception as other:
                failures[streams.pop(stream).rank] = other

    def _failed(self, failures: dict[int, BaseException]) -> WorkerFailed:
        """Names the failure that the others follow from: a death, else the first one."""
        deaths = [rank for rank, error in failures.items() if is_death(error)]
        rank = (deaths or list(failures))[0]
        error = failures[rank]
        did = "died" if is_death(error) else "failed"
        text = f"{self.members[rank]} {did}: {reason_of(error)}"
        if len(failures) > 1:
            others = ", ".join(str(other) for other in sorted(failures) if other != rank)
            text += f"\n(workers {others} failed after it)"
        return WorkerFailed(text, failures, error)


def first_ready(streams: Iterable[Any], timeout: float | None) -> Any:
    """A stream that has something to give, or has ended; None if none has within `timeout` seconds."""
    ready, _ = aktis.wait(list(streams), num_returns=1, timeout=timeout)
    return ready[0] if ready else None


def is_death(error: BaseException) -> bool:
    """Whether the process ended, and not only the function."""
    return isinstance(error, ActorError)


def reason_of(error: BaseException) -> str:
    """The exception and where it was raised, or what a process died of."""
    if isinstance(error, TaskError):
        cause = error.cause
        name = type(cause).__name__ if cause is not None else "an exception"
        lines = str(error.traceback_str or "").strip()
        return f"{name}: {cause}\n{lines}"
    text = str(error)
    # The engine's sentence begins with the method that was called, which says nothing to the user.
    return text.split("its actor died: ", 1)[-1] if isinstance(error, ActorDiedError) else text


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out: of the process, of a GPU, or of the machine, whose kernel then killed it."""
    if isinstance(error, TaskError):
        error = error.cause
    return isinstance(error, MemoryError | OutOfMemoryError) or "out of memory" in str(error)


def ranked(handles: list[Any], places: list[Place], context: TrainContext) -> list[Member]:
    """Gives ranks so that the workers of one node follow each other."""
    nodes = list(dict.fromkeys(place.node_id for place in places))
    members: list[Member] = []
    for node_rank, node in enumerate(nodes):
        here = [pair for pair in zip(handles, places) if pair[1].node_id == node]
        for local_rank, (handle, place) in enumerate(here):
            own = replace(
                context,
                world_size=len(places),
                world_rank=len(members),
                local_rank=local_rank,
                local_world_size=len(here),
                node_rank=node_rank,
            )
            members.append(Member(own.world_rank, handle, place, own))
    return members


def reserve(scaling: ScalingConfig) -> PlacementGroup:
    """Reserves the workers' places: as many as there is room for, between the bounds of an elastic run."""
    for count in range(scaling.workers_max, scaling.workers_min, -1):
        if room_for(scaling) < count and not wait_for_room(scaling, count):
            continue
        group = placement_group([scaling.worker_resources] * count, scaling.placement_strategy)
        if group.wait(ELASTIC_SECONDS):
            return group
        remove_placement_group(group)
    return reserve_exactly(scaling, scaling.workers_min)


def reserve_exactly(scaling: ScalingConfig, count: int) -> PlacementGroup:
    """Reserves so many places, or raises `NoRoomError` when the time is over."""
    group = placement_group([scaling.worker_resources] * count, scaling.placement_strategy)
    try:
        if group.wait(min(NOTICE_SECONDS, scaling.placement_timeout_s)):
            return group
        missing = shortage(scaling, count)
        if scaling.placement_timeout_s > NOTICE_SECONDS:
            warnings.warn(f"the run waits for room: {missing}", stacklevel=2)
            if group.wait(scaling.placement_timeout_s - NOTICE_SECONDS):
                return group
        remove_placement_group(group)
        raise NoRoomError(
            f"there was no room for the workers within {scaling.placement_timeout_s:g} s: {missing}\n"
            "hint: ask for fewer workers, make the run elastic with num_workers=(1, N), or add nodes"
        )
    except BaseException:
        with contextlib.suppress(AktisError):
            remove_placement_group(group)
        raise


def shortage(scaling: ScalingConfig, count: int) -> str:
    """What the workers need, and what the cluster has."""

    def show(amounts: Mapping[str, float]) -> str:
        names = scaling.worker_resources
        return ", ".join(f"{amounts.get(name, 0.0):g} {name}" for name in names) or "nothing"

    need = f"{count} workers need {show(scaling.worker_resources)} each ({scaling.placement_strategy})"
    total, free = aktis.cluster_resources(), aktis.available_resources()
    return f"{need}; the cluster has {show(total)}, of which {show(free)} free"


def wait_for_room(scaling: ScalingConfig, count: int) -> bool:
    """Waits a moment for resources that a worker which has just ended gives back."""
    deadline = time.monotonic() + ELASTIC_SECONDS
    for pause in itertools.repeat(0.02):
        # Nothing that ends can give back more than the cluster has.
        if room_for(scaling, aktis.cluster_resources()) < count or time.monotonic() > deadline:
            return False
        if room_for(scaling) >= count:
            return True
        time.sleep(pause)
    return False


def room_for(scaling: ScalingConfig, resources: Mapping[str, float] | None = None) -> int:
    """How many workers the free resources suffice for, if they were all on one node."""
    free = aktis.available_resources() if resources is None else resources
    held = scaling.worker_resources
    return min((int(free.get(name, 0.0) / amount + 1e-9) for name, amount in held.items()), default=1 << 20)
