"""`_system_config`: settings that Ray's programs make, and what they mean here.

Every key is accepted, and none is complained about. `Settings` has those that mean something; a value that
makes no sense is refused. The others, and why, are in docs/coming-from-ray.md.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

SPILL_BYTES_MAX = (1 << 63) - 1
SPILL_ABOVE_PERCENT = 80
RETRY_DELAY_MILLISECONDS = 10
MILLISECONDS_MAX = 1 << 40


class Settings:
    """What a session is started with, besides what `init` has keywords for."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        spills = _switch(given, "automatic_object_spilling_enabled")
        self.spill_bytes_max = SPILL_BYTES_MAX if spills else 0
        self.spill_above_percent = _percent(given, "object_spilling_threshold", SPILL_ABOVE_PERCENT)
        #: What every process of the session goes by, under the native part's names; the rest is as usual.
        self.tuning: dict[str, int] = {}
        for key, name, largest in (
            ("max_direct_call_object_size", "inline_bytes_max", SPILL_BYTES_MAX),
            ("max_lineage_bytes", "lineage_bytes_max", SPILL_BYTES_MAX),
            ("task_retry_delay_ms", "retry_delay_milliseconds", MILLISECONDS_MAX),
            ("queued_tasks_max", "queued_tasks_max", SPILL_BYTES_MAX),
        ):
            if key in given:
                self.tuning[name] = min(_amount(key, given[key]), largest)
        if "task_retry_delay_ms" not in given:
            # Ten milliseconds at first, and twice as long each time, so that a passing trouble can pass.
            self.tuning["retry_delay_milliseconds"] = RETRY_DELAY_MILLISECONDS
            self.tuning["retry_doubles"] = 1
        if os.environ.get("AKTIS_COMPAT") == "1":
            # As in Ray, a task that is cancelled while it runs may go on and give a value after all.
            self.tuning["cancel_asks"] = 1
            # And the value of a finished task that was cancelled is not made again if it is lost.
            self.tuning["cancel_forgets"] = 1
        if not _switch(given, "locality_aware_leasing_enabled"):
            self.tuning["locality"] = 0
        if not _switch(given, "lineage_pinning_enabled"):
            self.tuning["lineage_bytes_max"] = 0


def _switch(given: Mapping[str, Any], key: str) -> bool:
    """Ray takes numbers for truth values as well, and a text from the environment."""
    value = given.get(key, True)
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "false")
    return bool(value)


def _amount(key: str, value: Any) -> int:
    number = _number(key, value)
    if number < 0:
        raise ValueError(f"_system_config[{key!r}] must not be negative, but is {value!r}")
    return int(number)


def _percent(given: Mapping[str, Any], key: str, usual: int) -> int:
    if key not in given:
        return usual
    number = _number(key, given[key])
    if not 0 <= number <= 1:
        raise ValueError(f"_system_config[{key!r}] is a part between 0 and 1, but is {given[key]!r}")
    return round(number * 100)


def _number(key: str, value: Any) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"_system_config[{key!r}] must be a number, not {value!r:.80}")
    if not math.isfinite(float(value)):
        raise ValueError(f"_system_config[{key!r}] must be a number that is finite, but is {value!r}")
    # Whole numbers stay exact, however large.
    return int(value) if hasattr(value, "__index__") else float(value)
