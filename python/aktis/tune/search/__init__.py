"""Searchers: they choose the configurations of trials."""

from aktis.tune.search.basic import BasicVariantGenerator
from aktis.tune.search.searcher import ConcurrencyLimiter, Searcher

__all__ = ["BasicVariantGenerator", "ConcurrencyLimiter", "Searcher"]
