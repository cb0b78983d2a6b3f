"""`ray.util.collective.types`: how elements are combined."""

from aktis.collective import ReduceOp

__all__ = ["ReduceOp"]
