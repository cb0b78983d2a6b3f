"""What programs report: JSON lines that are the same with Ray and with Aktis where both behave alike."""

import json
import os
import sys
import time

import ray
import ray.exceptions

BUILTIN = (
    *(ArithmeticError, AssertionError, AttributeError, KeyError, LookupError, NotImplementedError),
    *(OSError, RuntimeError, StopIteration, SystemExit, TimeoutError, TypeError, ValueError),
)
RAYS = (
    *("ActorDiedError", "ActorUnavailableError", "ActorUnschedulableError", "GetTimeoutError"),
    *("NodeDiedError", "ObjectLostError", "ObjectReconstructionFailedError", "PendingCallsLimitExceeded"),
    *("RayActorError", "RayError", "RaySystemError", "RayTaskError", "RuntimeEnvSetupError"),
    *("TaskCancelledError", "TaskPlacementGroupRemoved", "TaskUnschedulableError", "WorkerCrashedError"),
)


def kinds(error):
    """The classes that programs catch, of which this is an instance."""
    found = [name for name in RAYS if isinstance(error, getattr(ray.exceptions, name))]
    return found + [kind.__name__ for kind in BUILTIN if isinstance(error, kind)]


def show(situation, function, *phrases):
    """Prints what a function gives or raises, and which of the phrases are in the text of that."""
    try:
        line = {"value": function()}
    except BaseException as error:
        line = {"raises": kinds(error)}
        if phrases:
            line["says"] = [phrase for phrase in phrases if phrase in str(error)]
    print(json.dumps({"situation": situation, **line}, sort_keys=True, default=repr), flush=True)


def start(*, dashboard=False, **options):
    """A small session, without a dashboard unless the program needs one."""
    found = ray.init(num_cpus=2, include_dashboard=dashboard, log_to_driver=False, **options)
    if "aktis" not in sys.modules:
        # Ray's state API looks for the session by itself, and refuses to choose among several.
        os.environ["RAY_ADDRESS"] = found.address_info["address"]


def wait_until(predicate, timeout=15):
    """Waits for a condition; whether it came."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if predicate():
            return True
        time.sleep(0.02)
    return False


def is_alive(pid):
    """Whether there is such a process."""
    return os.path.exists(f"/proc/{pid}")
