"""Schedulers: they stop trials that promise little, or let them go on from the checkpoint of a better one."""

from aktis.tune.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler
from aktis.tune.schedulers.median import MedianStoppingRule
from aktis.tune.schedulers.pbt import PopulationBasedTraining
from aktis.tune.schedulers.scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "TrialScheduler",
]
