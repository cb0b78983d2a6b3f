"""Search for good configurations: many trials, each an actor, with the names that users of Ray Tune know.

    from aktis import tune

    def train(config):
        tune.report({"loss": (config["x"] - 3) ** 2})

    tuner = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 10)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=20),
    )
    print(tuner.fit().get_best_result().config)

The guide is docs/tune.md.
"""

from aktis.train.checkpoint import Checkpoint, CheckpointError
from aktis.train.config import CheckpointConfig, FailureConfig, RunConfig
from aktis.train.result import Result
from aktis.train.session import TrainContext, get_checkpoint, get_context, report
from aktis.tune import schedulers, search, stopper
from aktis.tune.callback import Callback
from aktis.tune.console import CLIReporter
from aktis.tune.controller import TuneError
from aktis.tune.result_grid import ExperimentAnalysis, ResultGrid
from aktis.tune.space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from aktis.tune.stopper import Stopper
from aktis.tune.trainable import PlacementGroupFactory, Trainable, with_parameters, with_resources
from aktis.tune.tuner import TuneConfig, Tuner, run

TuneContext = TrainContext
"""What `get_context` gives in a trial."""

__all__ = [
    "CLIReporter",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointError",
    "ExperimentAnalysis",
    "FailureConfig",
    "PlacementGroupFactory",
    "Result",
    "ResultGrid",
    "RunConfig",
    "Stopper",
    "Trainable",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "Tuner",
    "choice",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "report",
    "run",
    "sample_from",
    "schedulers",
    "search",
    "stopper",
    "uniform",
    "with_parameters",
    "with_resources",
]
