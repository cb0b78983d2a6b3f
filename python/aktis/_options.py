"""The options of tasks, actors and methods: checked where they are written, long before there is a cluster.

Each option has one checker, which gives back the value in its plain form: TypeError for a wrong type,
ValueError for a wrong range. What the native callers want is made of them here too, so that the defaults
stand in one place.
"""

from collections.abc import Callable, Mapping
from typing import Any

RESOURCE_PRECISION = 0.0001
STREAM_AHEAD_DEFAULT = 0
MAX_RETRIES_DEFAULT = 3
ASYNC_CONCURRENCY_DEFAULT = 1000
NAME_BYTES_MAX = 4096
RETURNS_MAX = 16_384
STREAMING = -1
DYNAMIC = -2

Options = dict[str, Any]
Checker = Callable[[str, Any], Any]

# --- checkers ---------------------------------------------------------------------------------


def _type_error(name: str, value: object, wanted: str) -> TypeError:
    sentence = f"the option {name!r} must be {wanted}, not {value!r:.80} ({type(value).__name__})"
    known = _RAY_TYPES.get(name)
    if known is not None:
        sentence = (
            f"The type of keyword '{name}' must be {known}, but received type {type(value)}\n{sentence}"
        )
    return TypeError(sentence)


# Ray's names for the types, in the order of its own sentence, which programs match on.
_RAY_TYPES = {
    **dict.fromkeys(
        ("max_retries", "max_calls", "max_restarts", "max_task_retries"),
        "(<class 'int'>, <class 'NoneType'>)",
    ),
    "num_returns": "(<class 'int'>, <class 'str'>, <class 'NoneType'>)",
}

_UNLIMITED = "only accepts None, 0, -1 or a positive integer, where -1 represents infinity."
_RAY_RANGES = {
    **dict.fromkeys(("max_retries", "max_restarts", "max_task_retries"), _UNLIMITED),
    "max_calls": "only accepts None, 0 or a positive integer",
    "num_returns": "only accepts None, a non-negative integer, 'streaming' (for generators), or 'dynamic'",
}


def _range_error(name: str, sentence: str) -> ValueError:
    """Ray's sentence first where it has one, then ours."""
    known = _RAY_RANGES.get(name)
    return ValueError(f"The keyword '{name}' {known}\n{sentence}" if known else sentence)


def amount(name: str, value: Any) -> float:
    """An amount of a resource: not negative, in steps of 0.0001."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise _type_error(name, value, "a number")
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"the option {name!r} must not be negative or infinite, but is {value!r}")
    rounded = round(number, 4)
    if number and not rounded:
        raise ValueError(
            f"The precision of the fractional quantity of resource {_resource(name)} cannot go beyond "
            f"{RESOURCE_PRECISION}\n"
            f"the option {name!r} is {value!r}, and the finest amount of a resource is {RESOURCE_PRECISION}"
        )
    return rounded


def _resource(name: str) -> str:
    """The name of a resource as the user wrote it: the key in `resources`, else the option."""
    return name.partition("['")[2].removesuffix("']") or name


def byte_amount(name: str, value: Any) -> float:
    """A number of bytes; what is below one byte does not count."""
    number = amount(name, value)
    return float(int(number))


def resource_map(name: str, value: Any) -> dict[str, float]:
    """Custom resources by name."""
    if not isinstance(value, Mapping):
        raise _type_error(name, value, "a dictionary from names to amounts")
    for key in value:
        if not isinstance(key, str):
            raise _type_error(name, key, "a dictionary with strings as keys")
        if key in ("CPU", "GPU", "memory", "object_store_memory"):
            option = {"CPU": "num_cpus", "GPU": "num_gpus"}.get(key, key)
            raise ValueError(f"{key!r} has no place in the option {name!r}\nhint: use {option}=... instead")
        if not key:
            raise ValueError(f"the option {name!r} has a resource without a name")
    return {key: amount(f"{name}[{key!r}]", item) for key, item in value.items()}


def whole(minimum: int) -> Checker:
    """A whole number from `minimum` on; -1 stands for "without limit"."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise _type_error(name, value, "a whole number")
        number = int(value.__index__())
        if number < minimum:
            raise _range_error(name, f"the option {name!r} must be at least {minimum}, but is {number}")
        return number

    return check


def priority(name: str, value: Any) -> int:
    """How urgent something is: a whole number, as wide as the engine's."""
    number: int = whole(-(1 << 31))(name, value)
    if number >= 1 << 31:
        raise ValueError(f"the option {name!r} must be less than {1 << 31}, but is {number}")
    return number


def items_ahead(name: str, value: Any) -> int:
    """How many items a generator may be ahead of its consumer: -1, or at least 1."""
    if not isinstance(value, bool) and value == 0:
        raise ValueError(
            "backpressure_num_objects=0 is not allowed\n"
            f"the option {name!r} must be -1 (no limit) or at least 1, but is 0"
        )
    number: int = limit(1)(name, value)
    return number


def limit(minimum: int) -> Checker:
    """-1 for "no limit", or a whole number from `minimum` on."""
    inner = whole(-1)

    def check(name: str, value: Any) -> int:
        number: int = inner(name, value)
        if -1 < number < minimum:
            raise ValueError(f"the option {name!r} must be -1 or at least {minimum}, but is {number}")
        return number

    return check


def text(name: str, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str):
        raise _type_error(name, value, "a string")
    if not value:
        raise ValueError(f"the option {name!r} must not be an empty string")
    return value


def short_text(name: str, value: Any) -> str:
    """A text that is not empty, not too long for a name, and can be written as UTF-8."""
    found = text(name, value)
    try:
        size = len(found.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"the option {name!r} is no valid text: {error}") from None
    if size > NAME_BYTES_MAX:
        raise ValueError(
            f"the option {name!r} takes {size} bytes, and the limit is {NAME_BYTES_MAX}: {found[:40]!r}..."
        )
    return found


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise _type_error(name, value, "True or False")
    return value


def return_count(name: str, value: Any) -> int | str:
    """How many values a call gives."""
    if isinstance(value, str):
        if value not in ("streaming", "dynamic"):
            sentence = (
                f"the option {name!r} must be a whole number, 'streaming' or 'dynamic', but is {value!r}"
            )
            raise _range_error(name, sentence)
        return value
    number: int = whole(0)(name, value)
    if number > RETURNS_MAX:
        raise ValueError(f"the option {name!r} is {number}, and the limit is {RETURNS_MAX}")
    return number


def exception_types(name: str, value: Any) -> bool | tuple[type[BaseException], ...]:
    """Which exceptions make a task run again."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (list, tuple)) and all(
        isinstance(item, type) and issubclass(item, BaseException) for item in value
    ):
        return tuple(value)
    raise _type_error(name, value, "True, False, or a list of exception types")


def lifetime(name: str, value: Any) -> str:
    """How long an actor lives."""
    if not isinstance(value, str):
        raise _type_error(name, value, "'detached', 'non_detached' or None")
    if value not in ("detached", "non_detached"):
        raise ValueError(f"the option {name!r} must be 'detached', 'non_detached' or None, but is {value!r}")
    return value


def group_limits(name: str, value: Any) -> dict[str, int]:
    """Concurrency groups with the number of calls that may run at once in each."""
    if not isinstance(value, Mapping):
        raise _type_error(name, value, "a dictionary from names to numbers")
    return {text(name, key): whole(1)(f"{name}[{key!r}]", item) for key, item in value.items()}


def strategy(name: str, value: Any) -> Any:
    """Where to run: a word, or an object of `aktis.util.scheduling_strategies`, known by its fields."""
    if isinstance(value, str):
        if value not in ("DEFAULT", "SPREAD"):
            raise ValueError(
                f"the option {name!r} must be 'DEFAULT', 'SPREAD' or an object of "
                f"aktis.util.scheduling_strategies, but is {value!r}"
            )
        return value
    if hasattr(value, "placement_group") or hasattr(value, "node_id") or hasattr(value, "hard"):
        return value
    raise _type_error(name, value, "'DEFAULT', 'SPREAD' or an object of aktis.util.scheduling_strategies")


def placement_group(name: str, value: Any) -> Any:
    """A placement group, or "default"."""
    if value == "default" or hasattr(value, "id"):
        return value
    raise _type_error(name, value, "a placement group")


def labels(name: str, value: Any) -> dict[str, str]:
    """Labels with the values they must, or must not, have."""
    if not isinstance(value, Mapping):
        raise _type_error(name, value, "a dictionary from strings to strings")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise _type_error(name, item, "a dictionary from strings to strings")
    return dict(value)


def environment(name: str, value: Any) -> dict[str, Any]:
    """A runtime environment."""
    from aktis import _runtime_env

    return _runtime_env.validate(value)


def seconds(name: str, value: Any) -> float:
    """A time that is left, in seconds."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise _type_error(name, value, "a number of seconds")
    if not float(value) > 0:
        raise ValueError(f"the option {name!r} must be more than 0 seconds, but is {value!r}")
    return float(value)


def checkpoint_interval(name: str, value: Any) -> tuple[int, int]:
    """When an actor takes a checkpoint: after how many calls, and after how many milliseconds."""
    from aktis import _checkpoint

    return value if isinstance(value, tuple) else _checkpoint.interval(name, value)


def directory(name: str, value: Any) -> str:
    """An absolute path of a directory."""
    import os

    if not isinstance(value, (str, os.PathLike)):
        raise _type_error(name, value, "a path")
    path = os.fspath(value)
    if not isinstance(path, str) or not os.path.isabs(path):
        raise ValueError(f"the option {name!r} must be an absolute path, but is {value!r}")
    return path


def anything(name: str, value: Any) -> Any:
    """What Ray has and Aktis does not need."""
    return value


# --- which option belongs where ---------------------------------------------------------------

_COMMON: dict[str, Checker] = {
    "num_cpus": amount,
    "num_gpus": amount,
    "memory": byte_amount,
    "object_store_memory": byte_amount,
    "resources": resource_map,
    "accelerator_type": text,
    "label_selector": labels,
    "fallback_strategy": anything,
    "name": short_text,
    "scheduling_strategy": strategy,
    "placement_group": placement_group,
    "placement_group_bundle_index": whole(-1),
    "placement_group_capture_child_tasks": flag,
    "runtime_env": environment,
    "priority": priority,
    "enable_task_events": flag,
    "_metadata": anything,
    "_labels": labels,
}

TASK: dict[str, Checker] = {
    **_COMMON,
    "num_returns": return_count,
    "max_retries": whole(-1),
    "retry_exceptions": exception_types,
    "max_calls": whole(0),
    "deadline": seconds,
    "_generator_backpressure_num_objects": items_ahead,
}

ACTOR: dict[str, Checker] = {
    **_COMMON,
    "max_restarts": whole(-1),
    "max_task_retries": whole(-1),
    "max_pending_calls": limit(1),
    "max_concurrency": whole(1),
    "concurrency_groups": group_limits,
    "namespace": short_text,
    "lifetime": lifetime,
    "get_if_exists": flag,
    "checkpoint": checkpoint_interval,
    "checkpoint_directory": directory,
    "allow_out_of_order_execution": flag,
}

METHOD: dict[str, Checker] = {
    "num_returns": return_count,
    "concurrency_group": text,
    "max_task_retries": whole(-1),
    "retry_exceptions": exception_types,
    "read_only": flag,
    "deadline": seconds,
    "name": short_text,
    "enable_task_events": flag,
    "_generator_backpressure_num_objects": items_ahead,
}


def check(options: Mapping[str, Any], known: dict[str, Checker], what: str) -> Options:
    """The options in their plain form; None stands for the default, and such an option is left out."""
    checked: Options = {}
    for name, value in options.items():
        checker = known.get(name)
        if checker is None:
            public = ", ".join(sorted(key for key in known if not key.startswith("_")))
            raise ValueError(f"{what} have no option {name!r}\nhint: they have {public}")
        if value is not None:
            checked[name] = checker(name, value)
    return checked


def merge(base: Options, options: Mapping[str, Any], known: dict[str, Checker], what: str) -> Options:
    """Options with some of them replaced; None puts the default back."""
    merged = {**base, **check(options, known, what)}
    for name, value in options.items():
        if value is None:
            merged.pop(name, None)
    if merged.get("get_if_exists") and "name" not in merged:
        raise ValueError("the option 'get_if_exists' needs the option 'name'")
    if "placement_group" in merged and not isinstance(merged.get("scheduling_strategy", ""), str):
        raise ValueError("the options 'placement_group' and 'scheduling_strategy' exclude each other")
    return merged


# --- what the native callers want -------------------------------------------------------------


def resources(options: Options, cpus: float) -> dict[str, float]:
    """All that is needed, by name; `cpus` if the options do not say how many."""
    wanted: dict[str, float] = {
        "CPU": options.get("num_cpus", cpus),
        "GPU": options.get("num_gpus", 0.0),
        "memory": options.get("memory", 0.0),
        **options.get("resources", {}),
    }
    if "accelerator_type" in options:
        wanted[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    return {name: value for name, value in wanted.items() if value}


# Accelerators are handed out by index: a fraction of one, or whole ones.
ACCELERATORS = ("GPU", "TPU", "neuron_cores", "NPU", "HPU", "FURIOSA", "MBLT", "RBLN", "TTNPU")


def refuse_fractions(needs: Mapping[str, float]) -> None:
    """ValueError if more than one of an accelerator is asked for, and not a whole number of them."""
    for name in ACCELERATORS:
        number = needs.get(name, 0.0)
        if number > 1 and not float(number).is_integer():
            option = "num_gpus" if name == "GPU" else f"resources[{name!r}]"
            raise ValueError(f"the option {option!r} must be a whole number above 1, but is {number:g}")


def return_number(options: Options, is_generator: bool) -> int:
    """The number of returns as the native part counts them."""
    value = options.get("num_returns", "streaming" if is_generator else 1)
    if value == "streaming":
        return STREAMING
    return DYNAMIC if value == "dynamic" else int(value)


def retries(options: Options) -> bool | bytes:
    """Which exceptions are retried: none, all, or pickled types."""
    value = options.get("retry_exceptions", False)
    if isinstance(value, bool):
        return value
    from aktis._serialization import dumps_whole

    return dumps_whole(value) if value else False


def stream_ahead(options: Options) -> int:
    """How many items a generator may be ahead of its consumer; 0 for the engine's own limit."""
    return max(int(options.get("_generator_backpressure_num_objects", STREAM_AHEAD_DEFAULT)), 0)


def chosen_group(options: Options) -> tuple[Any, int, bool] | None:
    """The placement group that was asked for, the bundle in it, and whether children shall follow."""
    chosen = options.get("scheduling_strategy")
    index = -1
    follow = False
    if chosen is not None and hasattr(chosen, "placement_group"):
        found = chosen.placement_group
        index = getattr(chosen, "placement_group_bundle_index", -1)
        follow = bool(getattr(chosen, "placement_group_capture_child_tasks", False))
    else:
        found = options.get("placement_group")
        index = options.get("placement_group_bundle_index", -1)
        follow = options.get("placement_group_capture_child_tasks", False)
    if found is None or found == "default" or getattr(found, "is_empty", False):
        return None
    return found, whole(-1)("placement_group_bundle_index", -1 if index is None else index), follow


def group(options: Options, needs: dict[str, float]) -> tuple[bytes, int] | None:
    """The placement group to run in: the one asked for, else the one that a parent hands down."""
    from aktis import _runtime_env

    chosen = chosen_group(options)
    if chosen is None:
        if options.get("scheduling_strategy") is not None or "placement_group" in options:
            return None
        return _runtime_env.inherited_group()
    found, index, _ = chosen
    specs = getattr(found, "bundle_specs", None)
    if specs:
        if index >= len(specs):
            raise ValueError(
                f"the placement group has {len(specs)} bundles, so there is none with index {index}"
            )
        candidates = specs if index < 0 else [specs[index]]
        if not any(
            all(bundle.get(name, 0) >= value for name, value in needs.items()) for bundle in candidates
        ):
            raise ValueError(
                f"no bundle of the placement group can hold {needs}\n"
                f"hint: its bundles are {[dict(bundle) for bundle in specs]}"
            )
    return found.id.binary(), index


def placement(options: Options, fall_back: bool = False) -> Any:
    """Where it may run, as the native part is told. With `fall_back`, a label selector that no node fulfils
    may be replaced by another."""
    from aktis import _labels

    chosen = options.get("scheduling_strategy")
    node = getattr(chosen, "node_id", None)
    if node is not None:
        identity = bytes.fromhex(node) if isinstance(node, str) else node.binary()
        return identity, bool(getattr(chosen, "soft", False))
    selector = None
    if fall_back and options.get("fallback_strategy"):
        from aktis import _nodes

        selector = _labels.fallback(options, [each["Labels"] for each in _nodes.nodes() if each["Alive"]])
    hard, soft = _labels.hard_rules(options, selector), _labels.soft_rules(options)
    if hard or soft:
        return hard, soft
    return "SPREAD" if chosen == "SPREAD" else "DEFAULT"


UNSCHEDULABLE = (
    "The node specified via NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible for this"
)
"""What Ray says of a node that work insists on in vain; programs match on it."""


def wants_missing_node(options: Options, needs: Mapping[str, float]) -> str | None:
    """The node that the options insist on, if it is not there or can never hold so much; and why."""
    chosen = options.get("scheduling_strategy")
    node = getattr(chosen, "node_id", None)
    if node is None or getattr(chosen, "soft", False):
        return None
    from aktis import _nodes
    from aktis._engine import context

    wanted = node if isinstance(node, str) else node.hex()
    if wanted == context().node_id.hex() and not needs.keys() - {"CPU"} and needs.get("CPU", 0) <= 1:
        return None  # what every node has, in all likelihood: not worth a question
    known = {each["NodeID"]: each["Resources"] for each in _nodes.nodes() if each["Alive"]}
    if wanted not in known:
        return f"{wanted}, which is not there"
    lacking = [name for name, amount in needs.items() if known[wanted].get(name, 0.0) < amount]
    return f"{wanted}, which has too little {lacking[0]} in all" if lacking else None
