"""Data-parallel training on the cluster, with the names that users of Ray Train know.

    from aktis.train import RunConfig, ScalingConfig, report
    from aktis.train.torch import TorchTrainer

    def train_loop(config):
        ...
        report({"loss": loss}, checkpoint=checkpoint)

    result = TorchTrainer(train_loop, scaling_config=ScalingConfig(num_workers=2)).fit()

The workers are actors in a placement group. A worker that dies costs the work since the last checkpoint.
The guide is docs/train.md.
"""

from typing import TYPE_CHECKING, Any

from aktis.train.checkpoint import Checkpoint, CheckpointError
from aktis.train.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from aktis.train.data import DatasetShard
from aktis.train.group import NoRoomError
from aktis.train.result import Result
from aktis.train.session import TrainContext, get_checkpoint, get_context, get_dataset_shard, report
from aktis.train.trainer import Backend, DataParallelTrainer, TrainingFailedError

if TYPE_CHECKING:
    from aktis.train import torch
    from aktis.train.parameter_server import ParameterServer

__all__ = [
    "Backend",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointError",
    "DataParallelTrainer",
    "DatasetShard",
    "FailureConfig",
    "NoRoomError",
    "ParameterServer",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "TrainContext",
    "TrainingFailedError",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "report",
    "torch",
]


def __getattr__(name: str) -> Any:
    if name == "torch":
        import aktis.train.torch as module

        return module
    if name == "ParameterServer":
        from aktis.train.parameter_server import ParameterServer

        return ParameterServer
    raise AttributeError(f"module 'aktis.train' has no attribute {name!r}")
