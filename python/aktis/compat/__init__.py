"""Runs programs that were written for Ray: after `import aktis.compat`, `import ray` gives Aktis.

Either import this module before anything that imports `ray`, or start the program with it:

    python -m aktis.compat program.py ...
    python -m aktis.compat -m pytest ...

Modules are the same objects under both names (`ray.exceptions is aktis.exceptions`). This holds in the
program, in the Python programs that it starts, and in every worker. What Aktis does not have can be imported
as well, and raises `NotSupported`, which names it, when it is used.
"""

from aktis.compat._enable import enable
from aktis.compat._environment import AKTIS_VERSION, RAY_VERSION, is_enabled
from aktis.compat._missing import NotSupported

__all__ = ["AKTIS_VERSION", "RAY_VERSION", "NotSupported", "enable", "is_enabled"]

enable()
