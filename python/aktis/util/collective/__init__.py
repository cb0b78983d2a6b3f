"""`ray.util.collective`: the functions of `aktis.collective`."""

from aktis.collective import *  # noqa: F403
from aktis.collective import __all__ as __all__
