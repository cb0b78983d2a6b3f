"""`TorchTrainer`: data-parallel training of PyTorch models."""

from collections.abc import Callable, Mapping
from typing import Any

from aktis.train.checkpoint import Checkpoint
from aktis.train.config import RunConfig, ScalingConfig
from aktis.train.torch.config import TorchBackend, TorchConfig
from aktis.train.trainer import DataParallelTrainer

__all__ = ["TorchTrainer"]


class TorchTrainer(DataParallelTrainer):
    """Runs a training function in workers that are joined by `torch.distributed`.

    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"rate": 0.01},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    )
    result = trainer.fit()
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        use_gpu = scaling_config is not None and scaling_config.worker_resources.get("GPU", 0) > 0
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            backend=TorchBackend(torch_config or TorchConfig(), use_gpu),
        )
