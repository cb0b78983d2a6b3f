"""A trial: one configuration, its folder, and what has become of it."""

import os
from dataclasses import dataclass, field
from typing import Any

from aktis.train.checkpoint import Checkpoint
from aktis.train.result import Result
from aktis.train.storage import RunFolder

PENDING, RUNNING, PAUSED, TERMINATED, ERROR = "PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"


@dataclass
class Trial:
    """What is stored of a trial with the state of the experiment."""

    id: str
    number: int
    name: str
    config: dict[str, Any]
    path: str
    status: str = PENDING
    failures: int = 0
    error: BaseException | None = None
    seconds: float = 0.0
    """How long it has run, in all of its attempts."""
    last_result: dict[str, Any] = field(default_factory=dict)

    @property
    def trial_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def is_finished(self) -> bool:
        """Whether it runs no more."""
        return self.status in (TERMINATED, ERROR)

    def result(self, folder: RunFolder) -> Result:
        """What the user gets."""
        found = Result.of_folder(folder, config=self.config, error=self.error, failures=self.failures)
        if found.metrics is not None:
            found.metrics = {**found.metrics, "config": self.config}
        return found


@dataclass
class Attempt:
    """A trial that runs: its actor, its reports, and what comes after the function has ended."""

    trial: Trial
    folder: RunFolder
    handle: Any
    began: float
    """On the clock of the driver."""
    seconds_before: float
    reported: float
    then: str = TERMINATED
    """Its status after the function has been ended."""
    next_config: dict[str, Any] | None = None
    """With which it is started again at once, in the same actor."""
    next_checkpoint: Checkpoint | None = None


def open_folder(trial: Trial, checkpoint_config: Any) -> RunFolder:
    """The folder of a trial that is to run; with what it has done before."""
    folder = RunFolder(trial.path, checkpoint_config)
    folder.open()
    return folder


def read_folder(trial: Trial, checkpoint_config: Any) -> RunFolder:
    """The folder of a trial as it is."""
    folder = RunFolder(trial.path, checkpoint_config)
    if os.path.isdir(trial.path):
        folder.read()
    return folder
