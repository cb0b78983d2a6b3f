"""Runs the programs beside this file with Aktis, and compares what they report with what Ray does.

    python compare.py                             # with the outcomes on record
    python compare.py --ray-python PATH           # with Ray itself, which that Python has
    python compare.py --ray-python PATH --record  # and writes those outcomes down

A program prints one JSON line for each situation. What is known to differ is in `DIFFERENCES`, with the
reason; an entry that does not differ any more is an error too.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
OUTCOMES = HERE / "outcomes"
SECONDS_MAX = 180

PYTHONS = {"AssertionError", "RuntimeError", "TypeError", "ValueError"}
"""Classes of Python's that exceptions of ours may be instances of, too."""

_EARLY = "wrong options are refused where they are written"
_TYPE = "TypeError, as for other values of a wrong type"
_ITERABLE = "any iterable can be streamed, and can be taken apart for several returns"
_DELEGATES = "`yield from` an iterator works in actors; with Ray it raises AttributeError"
_FIRST_ITEM = "a generator is not a value: only streams and several returns take it apart"
_WHOLE = "the exception arrives with its fields, and is a RayTaskError as all are"
_HOLDERS = "an actor lives while somebody holds a handle of it, however it was got"
_DEAD_NAME = "the name of a dead actor is free at once"
_INSIDE = "init() without an address starts a node that this program alone uses"
_QUEUE = "Empty and Full are raised themselves, as by queues of Python's own"
_POOL = "exceptions are raised, and are what was raised there, as in pools of Python's own"
_ENDED = "a queue that was shut down says that its actor is gone"
DIFFERENCES: dict[tuple[str, str], str] = {
    ("actors_calls", "a group that is not there"): _EARLY,
    (
        "actors_exits",
        "exit_actor that is caught",
    ): "what the call returns all the same arrives, before the actor ends",
    ("generators_more", "wrong back-pressure"): _EARLY,
    ("nodes_state", "nodes of tasks"): "a task that is over is listed as this node's, wherever it ran",
    ("nodes_state", "a task that waits"): "the row names the node where the task waits",
    ("nodes_state", "a call that runs"): "a caller does not know whether a call on another node has begun",
    ("nodes_state", "get of its task"): "NodeDiedError is a WorkerCrashedError, too",
    ("nodes_state", "get of its call"): "an actor without a restart left is dead, and not just unavailable",
    ("nodes_state", "the call's error"): "an actor without a restart left is dead, and not just unavailable",
    ("nodes_state", "its bundle"): "a group that waits for room is PENDING, also after it had some",
    ("nodes_choice", "affinity of an actor to none"): "ActorDiedError too, as for other actors that are dead",
    ("sessions_more", "task: in a thread"): "a thread of a task is told what its task is",
    ("sessions_more", "task: name in a thread"): "a thread of a task is told what its task is",
    ("actors_owners", "only handles of get_actor are left"): _HOLDERS,
    ("actors_owners", "the name of one that died"): _DEAD_NAME,
    ("actors_owners", "the name of one that exited"): _DEAD_NAME,
    ("attaching", "its address"): _INSIDE,
    ("attaching", "a second driver"): _INSIDE,
    ("attaching", "what the second added"): _INSIDE,
    ("attaching", "the detached actor of the second"): _INSIDE,
    ("losses_more", "a task that ran, without retries"): "NodeDiedError is a WorkerCrashedError, too",
    ("losses_more", "of a nested task"): "a value outlives the task whose task made it, and is reconstructed",
    ("tools_more", "get with a timeout"): _QUEUE,
    ("tools_more", "put with a timeout"): _QUEUE,
    ("tools_more", "too many at once"): _QUEUE,
    ("tools_more", "more than there are"): _QUEUE,
    ("tools_more", "its actor by name"): "the exception has a class of its own, which is a RayError too",
    ("tools_more", "after its shutdown"): _ENDED,
    ("tools_more", "after its forced shutdown"): _ENDED,
    ("tools_more", "a pool of none"): "a pool without actors is refused",
    ("tools_more", "pool: a failed imap"): _POOL,
    ("tools_more", "pool: callbacks"): _POOL,
    ("losses", "of an actor that restarts"): "results of actors' calls are not reconstructed",
    ("waits_for_resources", "OMP_NUM_THREADS in one process"): "set before libraries read it: other workers",
    ("actors_named", "nobody"): "the exception has a class of its own, which is a RayError too",
    ("actors_named", "other namespace"): "the exception has a class of its own, which is a RayError too",
    ("environments", "a package"): "tasks may name paths in py_modules, too; Ray takes them from init() only",
    ("groups", "a task that does not fit its bundle"): _EARLY,
    ("groups", "an actor in a removed group"): "fails at once; with Ray it waits for ever",
    ("serialising", "slots"): "objects with __slots__ and without a __dict__ travel",
    (
        "serialising",
        "a lock as a result",
    ): "a result that cannot be pickled is a failure of the task: RayTaskError too",
    ("serialising", "raises: a subclass"): _WHOLE,
    ("serialising", "raises: its fields"): _WHOLE,
    ("serialising", "raises: OSError"): _WHOLE,
    ("session", "the driver's resources"): "the driver holds nothing, and says so",
    ("session", "was it reconstructed"): "RuntimeError, as for other questions that need an actor",
    (
        "session",
        "an old reference",
    ): "a handle of a session that has ended: RaySystemError instead of a plain Exception",
    ("session", "wrong num_cpus as text"): _TYPE,
    ("session", "wrong resources as a list"): _TYPE,
    ("session", "wrong a small store"): "a small store is accepted: it has no minimum",
    ("state_rows", "wrong predicate"): "filters have the predicates < <= > >= for all columns",
    ("state_rows", "limit of 0"): _EARLY,
    ("streams", "actor: raises"): _DELEGATES,
    ("streams", "actor: dies"): _DELEGATES,
    ("streams", "actor: declared"): _DELEGATES,
    ("streams", "a list is no generator"): _ITERABLE,
    ("streams", "a generator with one return"): _FIRST_ITEM,
    ("streams", "two returns: too many"): _FIRST_ITEM,
    ("streams", "dynamic: raises"): "the exception is raised by get() of the generator, not by its last item",
    ("tasks_many", "a generator for two"): _ITERABLE,
    ("tasks_many", "a builtin"): "builtin functions can be remote, too",
    ("tasks_many", "documentation"): "a remote function has the name and the documentation of its function",
    ("tasks_many", "name"): "a remote function has the name and the documentation of its function",
    ("tasks_many", "options twice"): "options() can be called on the outcome of options()",
    ("cancelling", "running"): "interrupted at once; with Ray, not within 20 s where this was recorded",
    ("generators_ends", "completed of a failure"): "completed() tells of every failure",
    ("generators_ends", "get of a generator"): "get() of a generator is a mistake, and is told",
    (
        "generators_ends",
        "of an actor",
    ): "a call that was submitted runs to its end, though the handle is dropped",
    ("options_wrong", "actor {'max_concurrency': 0}"): _EARLY,
    ("options_wrong", "actor {'max_pending_calls': 0}"): _EARLY,
    ("options_wrong", "actor {'name': ''}"): _EARLY,
    (
        "options_wrong",
        "task {'num_returns': 'streams'}",
    ): "ValueError, as for other values that make no sense",
    ("options_wrong", "task {'scheduling_strategy': 'SOMEWHERE'}"): _EARLY,
    ("placement", "a task in a removed group"): "fails at once; with Ray it waits for ever",
    ("placement", "bundles [{'CPU': -1}]"): _EARLY,
    ("state_api", "the constructor"): "the row does not have the actor's name in front of the class's",
    ("placement", "bundles [{'bundle': 1}]"): "refused in the caller, with ValueError",
}
"""What is known to differ, and why: by program and situation."""

Outcome = dict[str, object]


def programs() -> list[str]:
    """The names of all programs."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "outcomes")


def run(program: str, command: list[str], seconds: float = SECONDS_MAX) -> dict[str, Outcome]:
    """What a program reports, by situation."""
    done = subprocess.run(
        [*command, f"{program}.py"],
        cwd=PROGRAMS,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    if done.returncode != 0:
        raise RuntimeError(f"{program} ended with code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return {line.pop("situation"): line for line in lines}


def recorded(program: str) -> dict[str, Outcome]:
    """What a program reported with Ray."""
    lines = [json.loads(line) for line in (OUTCOMES / f"{program}.jsonl").read_text().splitlines()]
    return {line.pop("situation"): line for line in lines}


def record(program: str, outcomes: dict[str, Outcome]) -> None:
    """Writes down what a program reported with Ray."""
    lines = [json.dumps({"situation": name, **line}, sort_keys=True) for name, line in outcomes.items()]
    OUTCOMES.mkdir(exist_ok=True)
    (OUTCOMES / f"{program}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def differences(program: str, theirs: dict[str, Outcome], ours: dict[str, Outcome]) -> list[str]:
    """What is not as it should be: unknown differences, and known ones that are none any more."""
    found = []
    for situation in {**theirs, **ours}:
        same = _is_alike(theirs.get(situation), ours.get(situation))
        known = DIFFERENCES.get((program, situation))
        if not same and known is None:
            found.append(
                f"{program}, {situation}:\n  Ray:   {theirs.get(situation)}\n  Aktis: {ours.get(situation)}"
            )
        if same and known is not None:
            found.append(f"{program}, {situation}: does not differ any more\n  it was said: {known}")
    return found


def _is_alike(theirs: Outcome | None, ours: Outcome | None) -> bool:
    """Whether a program cannot tell one from the other. An exception of ours may be an instance of more of
    Python's own classes: what catches Ray's catches ours."""
    if theirs is None or ours is None or "raises" not in theirs or "raises" not in ours:
        return theirs == ours
    more = set(_classes(ours)) - set(_classes(theirs))
    missing = set(_classes(theirs)) - set(_classes(ours))
    return not missing and more <= PYTHONS and theirs.get("says") == ours.get("says")


def _classes(outcome: Outcome) -> list[str]:
    found = outcome["raises"]
    assert isinstance(found, list)
    return found


def main() -> int:
    """The command line; 1 if something differs."""
    parser = argparse.ArgumentParser(description="Compare programs with Ray and with Aktis.")
    parser.add_argument("--ray-python", help="a Python that has Ray; without it, the record counts")
    parser.add_argument("--record", action="store_true", help="write down what Ray does")
    parser.add_argument("programs", nargs="*", help="names of programs; all without")
    given = parser.parse_args()
    if given.record and not given.ray_python:
        parser.error("--record needs --ray-python")
    count = 0
    problems: list[str] = []
    for program in given.programs or programs():
        theirs = run(program, [given.ray_python]) if given.ray_python else recorded(program)
        if given.record:
            record(program, theirs)
        ours = run(program, [sys.executable, "-m", "aktis.compat"])
        count += len(theirs)
        problems += differences(program, theirs, ours)
    for problem in problems:
        print(problem)
    print(f"{count} outcomes, {len(problems)} problems, {len(DIFFERENCES)} known differences")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
