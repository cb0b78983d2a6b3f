"""What a session imports in the background, while the program imports other things."""

from collections.abc import Callable
from typing import Any

RACE = """
import sys
import threading
import time

from aktis import _session

go = threading.Event()


def hold(frame, event, _):
    go.wait()


def trace(frame, event, _):
    if frame.f_globals.get("__name__") != "importlib" or frame.f_code.co_name != "<module>":
        return None
    if event == "line" and "sys" in frame.f_globals:
        # The package is half made. The other thread must not be able to find it so.
        sys.settrace(None)
        go.set()
        deadline = time.monotonic() + 5
        while "importlib.machinery" not in sys.modules and time.monotonic() < deadline:
            time.sleep(0.001)
    return trace


threading.settrace(hold)
_session._load_ahead()
threading.settrace(None)
sys.settrace(trace)
from importlib import import_module

sys.settrace(None)
go.set()
import_module("aktis.util.debug")
import aktis._serialization

print("loaded", import_module is sys.modules["importlib"].import_module)
"""


def test_imports_in_the_background_never_meet_a_half_made_importlib(
    run_script: Callable[..., Any],
) -> None:
    assert run_script(RACE).stdout == "loaded True\n"
