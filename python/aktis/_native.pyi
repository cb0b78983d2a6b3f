"""The native part of Aktis: the engine, and conversions between its values and Python's.

Only `aktis._engine` imports this module; everything else imports from there.
"""

import asyncio
import concurrent.futures
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar, final

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# The name of a label; "in", "not in", "exists" or "absent"; the values that matter.
Rule = tuple[str, str, list[str]]
# "DEFAULT" or "SPREAD"; a node, and whether others will do; or what must and what should hold for labels.
Strategy = str | tuple[bytes, bool] | tuple[list[Rule], list[Rule]]

# --- sessions ---------------------------------------------------------------------------------

@final
class Runtime:
    """This process in one session."""

    @staticmethod
    def start(
        *,
        resources: dict[str, float],
        store_bytes: int,
        spill_directory: str,
        spill_bytes_max: int,
        spill_above_percent: int,
        forward_output: bool,
        deduplicate_output: bool,
        labels: dict[str, str],
        tuning: dict[str, int],
        template: Sequence[str],
        environment: dict[str, str],
    ) -> Runtime:
        """Starts an embedded node. `template` is the command of the process that workers are forked from; see
        `wait_for_template`."""

    @staticmethod
    def attach(
        *,
        address: str,
        forward_output: bool,
        deduplicate_output: bool,
        tuning: dict[str, int],
        template: Sequence[str],
        environment: dict[str, str],
        timeout: float,
        share: bool,
    ) -> Runtime:
        """Attaches to the node of this machine that the address means; ConnectionError if there is none, or
        if it says nothing for so many seconds."""

    def wait_for_template(self) -> None:
        """Waits until the template process of an embedded node runs; shuts the node down if it cannot."""
    def session_id(self) -> bytes: ...
    def directory(self) -> str | None:
        """Where the node listens that it is attached to."""
    def number(self) -> int:
        """Tells it from all other sessions that this process has or had."""
    def is_closed(self) -> bool: ...
    def shutdown(self) -> None: ...
    def make_current(self) -> None:
        """Makes this the session of the whole process; RuntimeError if there is one."""
    def enter(self) -> None:
        """Makes this the session of the calling thread, until `leave`."""
    def leave(self) -> None: ...
    def resources(self) -> dict[str, float]:
        """What the node has in all."""
    def available_resources(self) -> dict[str, float]:
        """What of it is free now."""
    def worker_pids(self) -> list[int]: ...
    def template_pid(self) -> int | None:
        """The process that workers are forked from."""
    def find_actor(self, name: str) -> tuple[Actor, bytes] | None:
        """The actor with this name (namespaces are part of it) and the `details` it was created with."""
    def actor_names(self, namespace: str) -> list[str]: ...
    def timeline(self) -> list[tuple[str, str, str, int, float, float, bool]]:
        """What workers have run of late: kind, name, task, process, begin and duration in seconds (negative
        while it runs), and whether it failed."""

    def state(self, what: str, daemon: str | None = None) -> list[dict[str, Any]]:
        """Rows about `what`: "tasks", "actors", "objects", "nodes", "workers", "groups", "store".

        They are about the node of this process, and its own tasks. With the directory of a cluster's daemon
        they are about all of its nodes, but for groups.
        """
    def answer_within(self, seconds: float | None) -> None:
        """From now on, questions about keys, names and the state have answers within so many seconds in all,
        or raise GetTimeoutError."""
    def key_put(self, key: bytes, value: bytes, overwrite: bool) -> bool:
        """True if it was new."""
    def key_get(self, key: bytes) -> bytes | None: ...
    def key_delete(self, key: bytes) -> bool: ...
    def key_list(self, prefix: bytes) -> list[bytes]: ...
    def create_group(
        self,
        bundles: list[dict[str, float]],
        labels: list[list[Rule]],
        strategy: str,
        name: str,
        detached: bool,
    ) -> tuple[bytes, ObjectRef[None]]:
        """A placement group: its id, and a reference that is resolved when all bundles are reserved. `labels`
        has the conditions on the node of each bundle, or nothing."""
    def watch_group(self, group: bytes) -> ObjectRef[None]:
        """A reference that is resolved when all bundles of the group are reserved."""
    def remove_group(self, group: bytes) -> None: ...

def default_directory() -> os.PathLike[str]:
    """Where nodes of this user listen, unless told otherwise."""

def current() -> Runtime | None:
    """The session of the calling thread, else of the process."""

# --- objects ----------------------------------------------------------------------------------

@final
class ObjectRef(Generic[T_co]):
    """A counted reference to an object. Hashable, comparable, picklable, awaitable."""

    def __init__(self, binary: bytes, *_more: Any) -> None:
        """A reference to an object that is known by its id."""

    def binary(self) -> bytes: ...
    def hex(self) -> str: ...
    @staticmethod
    def nil() -> ObjectRef[Any]:
        """The reference to nothing."""
    @staticmethod
    def size() -> int:
        """How many bytes an id has."""
    def is_nil(self) -> bool: ...
    def is_ready(self) -> bool: ...
    def task_id(self) -> Any:
        """The id of the task that makes the object (`aktis.TaskID`)."""
    def job_id(self) -> Any:
        """The id of the job that it belongs to (`aktis.JobID`)."""
    def add_done_callback(self, callback: Callable[[ObjectRef[Any]], None]) -> None:
        """Calls `callback(ref)`, on the thread for callbacks, once there is a value or a failure."""
    def future(self) -> concurrent.futures.Future[T_co]:
        """The reference as a future of threads."""
    def as_future(self, _internal: bool = False) -> asyncio.Future[T_co]:
        """The reference as a future of the running event loop."""
    def __await__(self) -> Generator[Any, None, T_co]: ...

def put(value: T) -> ObjectRef[T]: ...
def get(refs: ObjectRef[T] | list[ObjectRef[T]], timeout: float | None) -> Any:
    """Values, in order. Raises what `hooks.to_exception` makes of a failure, and GetTimeoutError."""

def fetch(refs: list[ObjectRef[Any]]) -> None:
    """Has the values of those that are ready brought to this node; does not wait for them."""

def wait(
    refs: list[ObjectRef[Any]], num_returns: int, timeout: float | None, fetch: bool
) -> tuple[list[ObjectRef[Any]], list[ObjectRef[Any]] | Rest]:
    """Those that are ready, and the others. With `fetch`, values of the former are brought to this node."""

@final
class Rest:
    """The elements of a long list of references, which has not copied them yet."""

    def __len__(self) -> int: ...
    def fill(self, refs: list[Any]) -> None:
        """Gives the list its elements; does nothing the second time."""
    def append(self, item: Any) -> bool:
        """Whether the item could be appended without filling the list."""
    def wait(
        self, num_returns: int, timeout: float | None, fetch: bool
    ) -> tuple[list[ObjectRef[Any]], list[ObjectRef[Any]] | Rest] | None:
        """As `wait`; None if the list has to be filled first."""

def cancel(what: ObjectRef[Any] | Stream, force: bool, recursive: bool) -> None: ...
def explain(what: ObjectRef[Any] | Actor) -> str: ...
def object_from_id(binary: bytes) -> ObjectRef[Any]: ...
def reference_counts() -> dict[str, dict[str, int]]: ...

@final
class Stream:
    """What a streaming task gives: references, one after another."""

    def next(self, timeout: float | None) -> ObjectRef[Any] | None:
        """The next item, waiting for it; None at the end. An exception of the task is one extra reference."""
    def poll(self, callback: Callable[[], None]) -> ObjectRef[Any] | None | bool:
        """The next item, None at the end, or True if `callback` is called when it is worth asking again."""
    def watch(self, callback: Callable[[], None]) -> bool:
        """Whether the next item, or the end, is there; if not, `callback` is called when it is worth asking
        again. Nothing is taken."""
    def is_ready(self) -> bool:
        """Whether the next item, or the end, is there."""
    def is_finished(self) -> bool: ...
    def completed(self) -> ObjectRef[None]:
        """Resolved once the task has ended; fails if it did."""
    def task_id(self) -> bytes: ...

# --- calls ------------------------------------------------------------------------------------

@final
class Export:
    """A function or class that workers get by reference: `pickle()` is called once in each session."""

    name: str

    def __init__(
        self, name: str, pickle: Callable[[], bytes], code: object, origin: tuple[int, int] | None = None
    ) -> None: ...
    def origin_for_copy(self) -> tuple[int, int] | None:
        """While a value for workers is pickled: where the code is, for the copy of it in that value."""

@final
class Signature:
    """Checks arguments at the call. With positional arguments alone their number is compared; else `bind` is
    called, which raises TypeError if they do not fit. `maximum` is -1 for `*args`."""

    def __init__(self, minimum: int, maximum: int, bind: Callable[..., Any]) -> None: ...

@final
class TaskCaller:
    """Calling it submits a task."""

    def __init__(
        self,
        export: Export,
        signature: Signature,
        *,
        name: str,
        resources: dict[str, float],
        environment: str,
        num_returns: int,
        max_retries: int,
        retry_exceptions: bool | bytes,
        stream_ahead: int,
        group: tuple[bytes, int] | None,
        strategy: Strategy,
        max_calls: int,
        priority: int = 0,
        deadline: float | None = None,
    ) -> None:
        """`num_returns` is -1 for "streaming" and -2 for "dynamic"; `max_retries` is -1 for ever;
        `retry_exceptions` may be a pickled tuple of exception types; `environment` is opaque text: workers
        are shared only by tasks with the same text, and `prepare(environment)` is called in each; `deadline`
        is in seconds from the submission."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """An ObjectRef, a list of them (num_returns > 1), None (num_returns == 0), or a Stream."""

@final
class Actor:
    """A counted handle of an actor, without methods."""

    def binary(self) -> bytes: ...
    def hex(self) -> str: ...
    def kill(self, restart: bool) -> None: ...
    def begin(self) -> None:
        """What the actor waits for before it has a place is ready."""

@final
class ActorCaller:
    """Calling it creates an actor."""

    def __init__(
        self,
        export: Export,
        signature: Signature,
        *,
        type_name: str,
        name: str | None,
        details: bytes,
        resources: dict[str, float],
        placement: dict[str, float],
        environment: str,
        detached: bool,
        ends_with_creator: bool,
        max_restarts: int,
        max_task_retries: int,
        max_concurrency: int,
        concurrency_groups: list[tuple[str, int]],
        is_async: bool,
        group: tuple[bytes, int] | None,
        strategy: Strategy,
        priority: int = 0,
        checkpoint: tuple[int, int, str] | None = None,
    ) -> None:
        """`checkpoint` is the number of calls, the milliseconds, and the directory."""
    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Actor, list[ObjectRef[Any]]]:
        """The actor, and the references that it waits for: `begin` says that they are ready."""

@final
class MethodCaller:
    """Calling it calls a method of an actor."""

    actor_id: bytes

    def __init__(
        self,
        actor: Actor,
        method: str,
        signature: Signature | None,
        *,
        name: str,
        num_returns: int,
        max_task_retries: int,
        retry_exceptions: bool | bytes,
        concurrency_group: str | None,
        stream_ahead: int,
        is_async: bool = False,
        deadline: float | None = None,
        shown: str = "",
        read_only: bool = False,
    ) -> None:
        """`shown` is what people call its calls, if not by the class and the method."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

# --- inside a task ----------------------------------------------------------------------------

@final
class Context:
    """Where the calling code runs."""

    task_id: bytes
    actor_id: bytes | None
    job_id: bytes
    node_id: bytes
    worker_id: bytes
    function: str
    attempt: int
    gpus: list[int]
    resources: dict[str, float]
    group: tuple[bytes, int] | None
    incarnation: int
    """How often the actor was started again."""
    is_worker: bool

    def actor(self) -> tuple[Actor, bytes] | None:
        """The actor that this is, and the details that it was created with."""

def context() -> Context: ...
def parents(tasks: list[bytes]) -> dict[str, str]:
    """Which of these tasks submitted which: child to parent, in hexadecimal digits. What the calling process
    itself submitted has it as parent."""

def running_function() -> Any:
    """The function of the task that the calling thread runs; None if it runs none."""

def is_cancelled() -> bool: ...
def is_interrupted() -> bool: ...
def exit_actor() -> None: ...
def checkpoint() -> None: ...

# --- failures ---------------------------------------------------------------------------------

FAILURE_KINDS: list[str]

@final
class Failure:
    """Why there is no value; `aktis._errors.to_exception` makes an exception of it."""

    kind: str
    """One of `FAILURE_KINDS`."""
    message: str
    function: str
    task_id: bytes | None
    actor_id: bytes | None
    """The actor, if it is the reason that its call failed."""
    is_crash: bool
    """Whether the actor died with its process."""
    is_restarting: bool
    """Whether only the call was lost with it, and the actor may live again."""
    object_id: bytes | None
    pid: int | None
    signal: int | None
    exit_code: int | None
    out_of_memory: bool
    """Whether the kernel killed the process because memory ran out."""
    type_name: str | None
    """Of the exception, if `kind` is "raised"."""
    payload: bytes | None
    """What `aktis._errors.capture` gave, if `kind` is "raised"."""
    cause: Failure | None

# --- worker processes -------------------------------------------------------------------------

def run_template(prepare: Callable[[], None] | None) -> None:
    """The template's loop: forks a worker for each request. Returns in each child, which runs the worker.

    `prepare` is called before the first fork, while the program goes on.
    """

def run_worker(tuning: dict[str, int]) -> None:
    """Runs tasks and calls on the calling (main) thread until the session ends. Does not return."""

def output_mark() -> tuple[bytes, bytes]:
    """What a worker writes before and after what it prints: the name of what it runs is in there."""

def next_callbacks() -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """For the thread for callbacks: waits for functions that are to be called, each with its arguments."""

def report_unraisable(error: BaseException, callback: Callable[..., Any]) -> None:
    """Tells of an exception of a function that nobody waits for."""

def loop_turn(timeout: float | None) -> None:
    """For the event loop of an actor: runs what there is to run, or sleeps until there is something."""

def wake_loop() -> None:
    """Ends that sleep."""

@final
class Completion:
    """Told by the event loop how a call ended."""

    def context(self) -> Context:
        """Where the call runs."""
    def step(self, coroutine: Any) -> tuple[Any, Any] | None:
        """Goes the first step of the call's coroutine; gives the coroutine and what it waits for, if that
        does not end it."""
    def started(self, cancel: Callable[[], Any]) -> None: ...
    def exits(self) -> None:
        """The actor ends with the call."""
    def returned(self, value: Any) -> None: ...
    def raised(self, error: BaseException) -> None: ...

def begin_exit() -> None:
    """The program exits: from now on only the calling thread comes back from waiting."""

def set_hooks(hooks: Any) -> None:
    """Gives the native part the functions it calls: an object with the attributes of `aktis._hooks`."""

def version() -> str: ...

# --- clusters ---------------------------------------------------------------------------------

def cli(arguments: Sequence[str], restart: Sequence[str]) -> int:
    """The command `aktis`: `arguments` begin with its name, `restart` is what starts it once more; gives the
    exit code."""

def cluster_nodes(directory: str, with_dead: bool = False) -> list[dict[str, Any]]:
    """Nodes as the daemon knows them that has this directory, its own first: node_id, is_head, is_alive,
    host, address, labels, total, available, store_bytes, drivers (the ids of their processes)."""

def builtin_environments() -> list[str]: ...

_Spaces = tuple[list[float], list[float], int | None, list[float], list[float]]

class SimulatedBatch:
    def __init__(self, id: str, count: int, seed: int, same_step: bool) -> None: ...
    @property
    def steps_max(self) -> int: ...
    @property
    def state_width(self) -> int: ...
    def spaces(self) -> _Spaces: ...
    def reset(self, seed: int | None, observations: Any) -> None: ...
    def step(
        self,
        choices: Any | None,
        numbers: Any | None,
        observations: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
    ) -> tuple[list[int], list[float], list[int]]: ...
    def final_observations(self) -> list[float]: ...
    def states(self) -> list[float]: ...
    def set_states(self, states: Any, observations: Any) -> None: ...

class Rollouts:
    def __init__(self, id: str, count: int, seed: int) -> None: ...
    def spaces(self) -> _Spaces: ...
    def collect(
        self,
        steps: int,
        actor: list[tuple[Any, Any]],
        critic: list[tuple[Any, Any]] | None,
        acting: dict[str, Any],
        arrays: dict[str, Any],
    ) -> tuple[list[float], list[int]]: ...
    def evaluate(
        self, episodes: int, actor: list[tuple[Any, Any]], acting: dict[str, Any], seed: int
    ) -> tuple[list[float], list[int]]: ...
    def state(self) -> bytes: ...
    def set_state(self, state: bytes) -> None: ...

def evaluate_population(
    id: str, sizes: list[int], parameters: Any, episodes: int, seed: int, acting: dict[str, Any]
) -> tuple[list[float], int]: ...

# --- collectives ------------------------------------------------------------------------------

class CollectiveFailure(Exception):
    """A kind ("died", "timed out", "mismatch", "invalid", "interrupted", "setup"), a rank or None, a text."""

@final
class CollectiveSeat:
    """A place in a group that is not yet made. Members with the same place share memory."""

    def __init__(self, place: str, address: str | None) -> None: ...
    def card(self) -> bytes:
        """What the other members need to know of this seat."""
    def join(self, rank: int, cards: Sequence[bytes], timeout: float) -> CollectiveGroup: ...

@final
class CollectiveGroup:
    """One member of a group. Arrays are contiguous buffers of bytes."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def machines(self) -> int: ...
    def close(self) -> None: ...
    def set_timeout(self, timeout: float) -> None: ...
    def all_reduce(self, data_type: str, op: str, input: Any | None, output: Any) -> None: ...
    def reduce(self, data_type: str, op: str, root: int, input: Any, output: Any | None) -> None: ...
    def reduce_scatter(self, data_type: str, op: str, input: Any, output: Any) -> None: ...
    def all_gather(self, data_type: str, input: Any, output: Any) -> None: ...
    def broadcast(self, data_type: str, root: int, array: Any) -> None: ...
    def send(self, data_type: str, to: int, array: Any) -> None: ...
    def receive(self, data_type: str, from_rank: int, array: Any) -> None: ...
    def barrier(self) -> None: ...
