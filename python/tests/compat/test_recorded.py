"""Programs report the same with Aktis as they did with Ray; see compare.py."""

import sys

import pytest
from compare import differences, programs, recorded, run


@pytest.mark.parametrize("program", programs())
def test_a_program_does_what_it_does_with_ray(program: str) -> None:
    ours = run(program, [sys.executable, "-m", "aktis.compat"], seconds=50)
    assert not (found := differences(program, recorded(program), ours)), "\n".join(found)
