"""Checkpoints: folders of files that a run saves, and starts again from.

    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
        aktis.train.report({"loss": loss}, checkpoint=Checkpoint.from_directory(folder))

A checkpoint in a run's storage has a manifest: the sizes of its files and the metrics reported with it. So a
truncated checkpoint is recognised.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from aktis.exceptions import AktisError

__all__ = ["Checkpoint", "CheckpointError"]

MANIFEST = ".aktis.json"
"""The name of the manifest, in the checkpoint's folder."""

VERSION = 1
"""Of the manifest. A checkpoint of a newer version is refused."""

METADATA = ".metadata.json"
"""The name of the file with the user's own notes."""


class CheckpointError(AktisError):
    """A checkpoint is missing, truncated, or of a version that this Aktis cannot read."""


class Checkpoint:
    """A folder of files. The value holds its path alone; `from_directory` copies nothing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(
                f"the path of a checkpoint must be a text or a path, got {path!r}"
                "\nhint: give the folder that has its files"
            )
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> "Checkpoint":
        """The checkpoint whose files lie in the folder `path`."""
        return cls(path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files into the folder `path`, or a new temporary one, and returns its path."""
        self.verify()
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint_")
        shutil.copytree(self.path, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The folder with the files, to read from:

        with checkpoint.as_directory() as folder:
            model.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
        """
        self.verify()
        yield self.path

    def verify(self) -> None:
        """Raises `CheckpointError`, which names the file, if the checkpoint is not whole."""
        if not os.path.isdir(self.path):
            raise CheckpointError(
                f"there is no checkpoint at {self.path}\n"
                "hint: `CheckpointConfig(num_to_keep=...)` says how many stay"
            )
        for name, size in self.manifest().get("files", {}).items():
            file = os.path.join(self.path, name)
            present = os.path.getsize(file) if os.path.isfile(file) else None
            if present != size:
                found = "is missing" if present is None else f"has {present} bytes"
                raise CheckpointError(
                    f"the checkpoint {self.path} is not whole: {name} {found}, and had {size} "
                    "when it was saved\n"
                    "hint: use an earlier checkpoint of the run"
                )

    def manifest(self) -> dict[str, Any]:
        """What the run noted about the checkpoint; empty for a folder that no run saved."""
        try:
            with open(os.path.join(self.path, MANIFEST), encoding="utf-8") as file:
                manifest = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise CheckpointError(
                f"the manifest of the checkpoint {self.path} cannot be read: {error}"
                "\nhint: use an older checkpoint of the run"
            ) from None
        version = manifest.get("version") if isinstance(manifest, dict) else None
        if version != VERSION:
            raise CheckpointError(
                f"the checkpoint {self.path} has version {version!r}, and this Aktis reads {VERSION}\n"
                "hint: read it with the Aktis that saved it"
            )
        return dict(manifest)

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` has stored."""
        try:
            with open(os.path.join(self.path, METADATA), encoding="utf-8") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores a dictionary beside the files."""
        write_json(os.path.join(self.path, METADATA), metadata)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds to what is stored beside the files."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r})"


def read_pickle(path: str, what: str) -> Any:
    """What cloudpickle has written to a file; `CheckpointError` if it is truncated or of another version."""
    import cloudpickle

    try:
        with open(path, "rb") as file:
            return cloudpickle.load(file)
    except Exception as error:  # damaged bytes make an unpickler raise anything
        raise CheckpointError(
            f"{what} cannot be read from {path}: {type(error).__name__}: {error}\n"
            "hint: the file is truncated, damaged or of another version; start anew under another `name`"
        ) from error


def write_json(path: str, value: Any) -> None:
    """Replaces a file by the JSON of `value`, so that readers see the old text or the new one."""
    replace_file(path, json.dumps(value, default=as_json, indent=1).encode())


def replace_file(path: str, data: bytes) -> None:
    """Replaces a file at once, also if the machine stops meanwhile."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def as_json(value: Any) -> Any:
    """A number for what numpy and torch call a number, a list for an array, a text for all else."""
    for method in ("item", "tolist"):
        try:
            return getattr(value, method)()
        except (AttributeError, TypeError, ValueError, RuntimeError):
            continue
    return repr(value)
