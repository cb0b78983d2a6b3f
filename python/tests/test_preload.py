"""`runtime_env={"preload": [...]}`: modules that workers are forked with."""

import sys
from typing import Any

import pytest

import aktis
from support import get


@aktis.remote
def is_loaded(module: str) -> bool:
    return module in sys.modules


def test_workers_have_the_modules_from_the_start(no_session: None, capfd: pytest.CaptureFixture[str]) -> None:
    aktis.init(num_cpus=1, runtime_env={"preload": ["colorsys", "no_such_module"]})
    assert get([is_loaded.remote("colorsys"), is_loaded.remote("wave")]) == [True, False]
    aktis.shutdown()
    assert "'no_such_module' could not be preloaded" in capfd.readouterr().err


def test_other_sessions_do_not_have_them(session: Any) -> None:
    assert get(is_loaded.remote("colorsys")) is False


def test_what_is_no_list_of_names_is_refused() -> None:
    for wrong in ("torch", [1]):
        with pytest.raises(TypeError, match="list of names of modules"):
            aktis.init(runtime_env={"preload": wrong})
