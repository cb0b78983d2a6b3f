"""What a run leaves behind: metrics, checkpoints, its folder, and its error."""

import os
from dataclasses import dataclass, field
from typing import Any

from aktis.train.checkpoint import Checkpoint
from aktis.train.storage import RunFolder

__all__ = ["Result"]


@dataclass
class Result:
    """The outcome of a run or a trial.

    result = trainer.fit()
    print(result.metrics["loss"], result.checkpoint)
    """

    metrics: dict[str, Any] | None
    """The last metrics that worker 0 reported."""
    checkpoint: Checkpoint | None
    """The latest checkpoint."""
    path: str
    """The folder of the run."""
    error: BaseException | None = None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = field(default_factory=list)
    """The checkpoints that were kept, with the metrics reported with them, oldest first."""
    metrics_history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """All metrics that worker 0 reported."""
    config: dict[str, Any] | None = None
    """What the run was configured with."""
    failures: int = 0
    """How often the run started again from a checkpoint."""

    @classmethod
    def of_folder(cls, folder: RunFolder, **more: Any) -> "Result":
        """The outcome so far of a run that is stored in `folder`."""
        return cls(
            metrics=folder.history[-1] if folder.history else None,
            checkpoint=folder.saved[-1].checkpoint if folder.saved else None,
            path=folder.path,
            best_checkpoints=[(saved.checkpoint, saved.metrics) for saved in folder.saved],
            metrics_history=list(folder.history),
            **more,
        )

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> "Result":
        """The outcome of the run in this folder."""
        folder = RunFolder(os.path.abspath(os.path.expanduser(os.fspath(path))))
        if not os.path.isdir(folder.path) or not folder.read():
            raise ValueError(
                f"there is no run in {folder.path}\nhint: give the folder that `Result.path` names"
            )
        return cls.of_folder(folder)

    def get_best_checkpoint(self, metric: str, mode: str = "max") -> Checkpoint | None:
        """The kept checkpoint with the best value of a metric; None if none was reported with it."""
        from aktis.train.config import check_mode
        from aktis.train.storage import is_number

        check_mode("mode", mode)
        scored = [pair for pair in self.best_checkpoints if is_number(pair[1].get(metric))]
        order = max if mode == "max" else min
        return order(scored, key=lambda pair: float(pair[1][metric]))[0] if scored else None

    @property
    def metrics_dataframe(self) -> Any:
        """All metrics as a `pandas.DataFrame`, a row for each report."""
        import pandas  # type: ignore[import-untyped]

        return pandas.DataFrame(self.metrics_history)
