"""What the node on this machine offers, and what it is as far as `init` is not told otherwise."""

import os
from collections.abc import Mapping
from typing import Any

from aktis import _options

STORE_FRACTION = 0.3
STORE_BYTES_MAX = 200 << 30
STORE_BYTES_MIN = 64 << 20


class DefaultResourceError(AssertionError, ValueError):
    """A default resource was given among the custom ones. Ray's programs expect the one class, others the
    other."""


def cpus() -> int:
    """CPUs that this process may use: by its affinity and the limit of its control group."""
    count = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, max(int(quota) // int(period), 1))
    except (OSError, ValueError):
        pass
    return max(count, 1)


def memory_bytes() -> int:
    """Memory that this process may use."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            total = min(total, int(file.read()))
    except (OSError, ValueError):
        pass
    return total


def visible_gpus() -> list[str] | None:
    """GPUs that the user chose with CUDA_VISIBLE_DEVICES; None if nothing was chosen."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return None
    return [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]


def gpus() -> int:
    """GPUs that this process may use."""
    chosen = visible_gpus()
    if chosen is not None:
        return len(chosen)
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def _allowed(amount: float) -> float:
    """An amount of GPUs that is to be offered, which must have names."""
    chosen = visible_gpus()
    if chosen is not None and amount > len(chosen):
        raise ValueError(
            f"num_gpus is {amount:g}, but CUDA_VISIBLE_DEVICES names {len(chosen)}: {','.join(chosen)!r}\n"
            "hint: offer fewer, or name more"
        )
    return amount


def hidden_gpus(resources: Mapping[str, float]) -> dict[str, str]:
    """Variables of workers that have no GPU: they see none, so that nobody uses what is given to others. With
    Ray they see all, unless `RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO` says otherwise."""
    if os.environ.get("AKTIS_COMPAT") == "1":
        hides = os.environ.get("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0") in ("1", "true")
        return {"CUDA_VISIBLE_DEVICES": ""} if hides else {}
    return {"CUDA_VISIBLE_DEVICES": ""} if resources.get("GPU") or gpus() else {}


def offered(
    num_cpus: float | None,
    num_gpus: float | None,
    memory: float | None,
    resources: Mapping[str, float] | None,
) -> dict[str, float]:
    """The resources of the node, by name."""
    if num_gpus is None:
        num_gpus = gpus()
    for name in resources or ():
        if name in ("CPU", "GPU", "memory", "object_store_memory"):
            raise DefaultResourceError(
                f"`{name}` cannot be a custom resource because it is one of the default resources\n"
                "hint: init() has num_cpus, num_gpus, memory and object_store_memory for them"
            )
    offered = {
        "CPU": _options.amount("num_cpus", cpus() if num_cpus is None else num_cpus),
        "GPU": _allowed(_options.amount("num_gpus", num_gpus)),
        "memory": _options.byte_amount("memory", int(memory_bytes() * 0.7) if memory is None else memory),
        "node:127.0.0.1": 1.0,
        "node:__internal_head__": 1.0,
        **_options.resource_map("resources", resources or {}),
    }
    return {name: value for name, value in offered.items() if value or name == "CPU"}


def store_bytes(wanted: int | None) -> int:
    """The size of the object store: pages of it are used only once something is in them."""
    if wanted is None and (given := os.environ.get("AKTIS_OBJECT_STORE_MEMORY", "").strip()):
        if not given.isdigit():
            raise ValueError(f"AKTIS_OBJECT_STORE_MEMORY is a number of bytes, but is {given!r}")
        wanted = int(given)
    if wanted is None:
        return min(max(int(memory_bytes() * STORE_FRACTION), STORE_BYTES_MIN), STORE_BYTES_MAX)
    return max(int(_options.byte_amount("object_store_memory", wanted)), STORE_BYTES_MIN)


def spill_directory(wanted: str | None, configuration: Mapping[str, Any]) -> str:
    """Where objects go that the store has no room for."""
    if wanted:
        os.makedirs(wanted, exist_ok=True)
        return wanted
    settings = configuration.get("object_spilling_config")
    if settings:
        if isinstance(settings, str):
            import json

            settings = json.loads(settings)
        found = settings.get("params", {}).get("directory_path")
        found = found[0] if isinstance(found, list) and found else found
        if found:
            os.makedirs(found, exist_ok=True)
            return str(found)
    return os.environ.get("AKTIS_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
