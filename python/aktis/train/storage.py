"""The folder of a run: numbered checkpoints, the metrics reported, and the state of the run.

    run.json              whether the run is done, and which checkpoints there are
    result.json           one line of JSON for each report of worker 0
    checkpoint_000000/    files of all workers, and a manifest
    .staging/             files of reports that are not complete yet

A checkpoint appears by one rename, after all of its files are on the disk. A worker that does not see the
folder, because it is on another machine, sends its files to the driver instead.
"""

import contextlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass, field
from typing import Any

from aktis.train.checkpoint import (
    MANIFEST,
    VERSION,
    Checkpoint,
    CheckpointError,
    as_json,
    replace_file,
    write_json,
)
from aktis.train.config import CheckpointConfig

STAGING = ".staging"
TOKEN = ".storage"
STATE = "run.json"
RESULTS = "result.json"
PREFIX = "checkpoint_"

Files = dict[str, bytes]
"""The contents of files by their paths below a folder."""


@dataclass
class Part:
    """What one worker contributes to a checkpoint: a staged folder, or the files themselves."""

    rank: int
    folder: str | None = None
    files: Files | None = None
    name: str | None = None
    """What the program wants the checkpoint's folder to be called."""


@dataclass(frozen=True)
class Staging:
    """How workers hand files over; goes to each of them."""

    run_folder: str
    token: str

    def is_visible(self) -> bool:
        """Whether this process sees the same folder as the driver."""
        try:
            with open(os.path.join(self.run_folder, TOKEN), encoding="ascii") as file:
                return file.read() == self.token
        except OSError:
            return False

    def stage(self, checkpoint: Checkpoint, rank: int, name: str | None) -> Part:
        """Copies a worker's files, so that the program may delete its own."""
        if not os.path.isdir(checkpoint.path):
            raise CheckpointError(
                f"there is no folder {checkpoint.path} to save as a checkpoint\n"
                "hint: call `report` before the temporary folder is deleted"
            )
        if not self.is_visible():
            return Part(rank, files=read_files(checkpoint.path), name=name)
        folder = os.path.join(self.run_folder, STAGING, uuid.uuid4().hex)
        shutil.copytree(checkpoint.path, folder, ignore=shutil.ignore_patterns(MANIFEST))
        for path in paths_below(folder):
            sync(os.path.join(folder, path))
        return Part(rank, folder=folder, name=name)


def paths_below(folder: str) -> list[str]:
    """The paths of all files below a folder, relative to it, in order."""
    found = []
    for place, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(place, name), folder) for name in names]
    return sorted(found)


def read_files(folder: str) -> Files:
    """The contents of all files below a folder but the manifest."""
    files = {}
    for path in paths_below(folder):
        if path != MANIFEST:
            with open(os.path.join(folder, path), "rb") as file:
                files[path] = file.read()
    return files


def write_files(folder: str, files: Files) -> None:
    """Writes what `read_files` has read."""
    os.makedirs(folder, exist_ok=True)
    for path, data in files.items():
        target = os.path.normpath(os.path.join(folder, path))
        if not target.startswith(os.path.normpath(folder) + os.sep):
            raise CheckpointError(
                f"the checkpoint has a file outside of its folder: {path}"
                "\nhint: use another checkpoint: this one was not written by aktis.train"
            )
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def sync(path: str) -> None:
    """Waits until a file or a folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass
class Saved:
    """A checkpoint of the run, and the metrics reported with it."""

    checkpoint: Checkpoint
    metrics: dict[str, Any] = field(default_factory=dict)


class RunFolder:
    """The folder of one run or trial. One process at a time writes to it."""

    def __init__(self, path: str, config: CheckpointConfig | None = None) -> None:
        self.path = path
        self.config = config or CheckpointConfig()
        self.saved: list[Saved] = []
        """The checkpoints that are kept, oldest first."""
        self.history: list[dict[str, Any]] = []
        """The metrics of worker 0, as far as they belong to the run as it is now."""
        self.done = False
        self._next = 0
        self._token = ""

    @property
    def staging(self) -> Staging:
        """For the workers."""
        return Staging(self.path, self._token)

    def open(self) -> bool:
        """Makes the folder, or reads what an earlier run has left there; whether that run was not done."""
        os.makedirs(self.path, exist_ok=True)
        shutil.rmtree(os.path.join(self.path, STAGING), ignore_errors=True)
        os.makedirs(os.path.join(self.path, STAGING))
        self._token = uuid.uuid4().hex
        replace_file(os.path.join(self.path, TOKEN), self._token.encode())
        unfinished = self.read() and not self.done
        self.done = False
        if not unfinished:
            self.saved, self.history = [], []
            self._write_history()
        self._write_state()
        return unfinished

    def read(self) -> bool:
        """Reads the state without changing anything; whether there is one."""
        numbers = [name[len(PREFIX) :] for name in os.listdir(self.path) if name.startswith(PREFIX)]
        self._next = max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)
        try:
            with open(os.path.join(self.path, STATE), encoding="utf-8") as file:
                state = json.load(file)
        except FileNotFoundError:
            return False
        except ValueError as error:
            raise CheckpointError(
                f"the state of the run in {self.path} cannot be read from {STATE}: {error}\n"
                "hint: choose another `name`, and give a checkpoint of this run as `resume_from_checkpoint`"
            ) from None
        version = state.get("version") if isinstance(state, dict) else None
        if version != VERSION:
            raise CheckpointError(
                f"the run in {self.path} has version {version!r}, and this Aktis reads {VERSION}\n"
                "hint: choose another `name` or `storage_path`"
            )
        self.done = state["done"]
        self.saved = []
        for entry in state["checkpoints"]:
            checkpoint = Checkpoint(os.path.join(self.path, entry["folder"]))
            if os.path.isdir(checkpoint.path):
                self.saved.append(Saved(checkpoint, entry["metrics"]))
        self.history = read_lines(os.path.join(self.path, RESULTS))
        return True

    def append(self, metrics: dict[str, Any]) -> None:
        """Adds a report of worker 0."""
        self.history.append(metrics)
        with open(os.path.join(self.path, RESULTS), "a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, default=as_json) + "\n")

    def commit(self, parts: list[Part], metrics: dict[str, Any], reports: int) -> Checkpoint:
        """Makes a checkpoint of what the workers have handed over with their report number `reports`.

        If several workers bring a file of the same name, the one of the lowest rank stays.
        """
        building = os.path.join(self.path, STAGING, uuid.uuid4().hex)
        os.makedirs(building)
        for part in sorted(parts, key=lambda part: -part.rank):
            if part.files is not None:
                write_files(building, part.files)
            elif part.folder is not None:
                move_files(part.folder, building)
        names = [part.name for part in parts if part.name is not None]
        target = os.path.join(self.path, names[0] if names else f"{PREFIX}{self._next:06}")
        if os.path.lexists(target):
            raise CheckpointError(f"there is a checkpoint {target} already\nhint: choose another name for it")
        self._next += 1
        sizes = {path: os.path.getsize(os.path.join(building, path)) for path in paths_below(building)}
        sizes.pop(".metadata.json", None)
        manifest = {"version": VERSION, "reports": reports, "metrics": metrics, "files": sizes}
        write_json(os.path.join(building, MANIFEST), manifest)
        sync(building)
        os.rename(building, target)
        sync(self.path)
        checkpoint = Checkpoint(target)
        self.saved.append(Saved(checkpoint, metrics))
        dropped = self._choose_dropped()
        self.saved = [saved for saved in self.saved if saved not in dropped]
        self._write_state()
        for saved in dropped:
            shutil.rmtree(saved.checkpoint.path, ignore_errors=True)
        return checkpoint

    def latest(self) -> Checkpoint | None:
        """The latest checkpoint that is whole. Those after it are forgotten, and a warning says so."""
        import warnings

        while self.saved:
            try:
                self.saved[-1].checkpoint.verify()
                return self.saved[-1].checkpoint
            except CheckpointError as error:
                warnings.warn(f"the run goes on from an earlier checkpoint: {error}", stacklevel=2)
                self.saved.pop()
        return None

    def rewind(self, checkpoint: Checkpoint | None) -> int:
        """Forgets the reports that came after the checkpoint; how many are left."""
        reports = int(checkpoint.manifest().get("reports", 0)) if checkpoint is not None else 0
        if reports < len(self.history):
            del self.history[reports:]
            self._write_history()
        shutil.rmtree(os.path.join(self.path, STAGING), ignore_errors=True)
        os.makedirs(os.path.join(self.path, STAGING))
        return reports

    def close(self) -> None:
        """The run is done."""
        self.done = True
        self._write_state()
        shutil.rmtree(os.path.join(self.path, STAGING), ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, TOKEN))

    def best(self, metric: str | None = None, mode: str | None = None) -> Saved | None:
        """The kept checkpoint with the best score; without a metric, the latest."""
        metric = metric or self.config.checkpoint_score_attribute
        if metric is None:
            return self.saved[-1] if self.saved else None
        scored = [saved for saved in self.saved if is_number(saved.metrics.get(metric))]
        order = max if (mode or self.config.checkpoint_score_order) == "max" else min
        return order(scored, key=lambda saved: float(saved.metrics[metric])) if scored else None

    def _choose_dropped(self) -> list[Saved]:
        keep = self.config.num_to_keep
        if keep is None or len(self.saved) <= keep:
            return []
        metric = self.config.checkpoint_score_attribute
        *earlier, latest = self.saved
        if metric is None:
            return self.saved[:-keep]
        sign = 1.0 if self.config.checkpoint_score_order == "max" else -1.0

        def score(saved: Saved) -> float:
            value: Any = saved.metrics.get(metric)
            return sign * float(value) if is_number(value) else -float("inf")

        ranked = sorted(self.saved, key=score, reverse=True)
        return [saved for saved in earlier if saved not in ranked[:keep] and saved is not latest]

    def _write_state(self) -> None:
        checkpoints = [
            {"folder": os.path.basename(saved.checkpoint.path), "metrics": saved.metrics}
            for saved in self.saved
        ]
        state = {"version": VERSION, "done": self.done, "checkpoints": checkpoints}
        write_json(os.path.join(self.path, STATE), state)

    def _write_history(self) -> None:
        lines = "".join(json.dumps(metrics, default=as_json) + "\n" for metrics in self.history)
        replace_file(os.path.join(self.path, RESULTS), lines.encode())


def is_number(value: object) -> bool:
    """Whether the value can be compared: an int or a float, and not NaN."""
    return isinstance(value, int | float) and value == value


def move_files(source: str, target: str) -> None:
    """Moves all files of one folder into another; what is there already is replaced."""
    for path in paths_below(source):
        place = os.path.join(target, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.replace(os.path.join(source, path), place)
    shutil.rmtree(source, ignore_errors=True)


def read_lines(path: str) -> list[dict[str, Any]]:
    """The lines of a file of JSON; what a crash has cut off at its end is left out."""
    lines = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    break
    except FileNotFoundError:
        pass
    return lines
