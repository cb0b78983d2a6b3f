"""What this machine offers, as far as `init` is not told otherwise."""

import os

STORE_FRACTION = 0.3
STORE_BYTES_MAX = 200 << 30
STORE_BYTES_MIN = 64 << 20


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


def store_bytes() -> int:
    """The size of the object store: pages of it are used only once something is in them."""
    return min(max(int(memory_bytes() * STORE_FRACTION), STORE_BYTES_MIN), STORE_BYTES_MAX)


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
