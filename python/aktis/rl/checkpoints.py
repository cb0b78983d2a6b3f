"""The file format of checkpoints: a zip of numpy arrays and one JSON text. Loading never runs code of it.

    entry      content
    tree.json  {"format": "aktis.rl checkpoint", "version": 1, "tree": ...}
    0.npy ...  the arrays, which the tree refers to by number

The tree is made of dicts, lists, strings, numbers, True, False and None; an array, a tensor of torch and
bytes stand in it as {"$array": number}, {"$tensor": number} and {"$bytes": number}. A zip has its table of
contents at the end and a checksum per entry, so a truncated or damaged file is always noticed.
"""

import io
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from aktis.rl.errors import CheckpointError

FORMAT = "aktis.rl checkpoint"
VERSION = 1

#: Keys of a dict of one entry that stands for bytes or numbers elsewhere in the file.
_MARKS = ("$array", "$tensor", "$bytes", "$pairs")


def save(path: str | os.PathLike[str], tree: dict[str, Any]) -> None:
    """Writes a checkpoint. The file appears at once and whole, or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: list[Any] = []
    text = json.dumps({"format": FORMAT, "version": VERSION, "tree": _flatten(tree, arrays)})
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("tree.json", text)
                for number, array in enumerate(arrays):
                    content = io.BytesIO()
                    np.lib.format.write_array(content, array, allow_pickle=False)
                    archive.writestr(f"{number}.npy", content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tree that `save` wrote; CheckpointError if the file is damaged or of another format or version."""
    if not isinstance(path, str | os.PathLike):
        raise CheckpointError(
            f'a checkpoint must be given by its path, got {path!r}\nhint: load("run/checkpoint.aktis")'
        )
    path = Path(path)
    if path.is_dir():
        raise CheckpointError(
            f"{path} is a directory\nhint: name the file in it: {path / 'checkpoint.aktis'}"
        )
    if not path.exists():
        raise CheckpointError(f"there is no file {path}\nhint: train with a directory= to have checkpoints")
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("tree.json"))
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise CheckpointError(
                    f"{path} is not a checkpoint of aktis.rl"
                    "\nhint: give a file that `save` or `train` has written"
                )
            if header.get("version") != VERSION:
                raise CheckpointError(
                    f"{path} has version {header.get('version')!r} of the checkpoint format, and this "
                    f"package reads version {VERSION}\nhint: load it with the version of aktis that wrote it"
                )

            def array(number: Any) -> Any:
                content = io.BytesIO(archive.read(f"{int(number)}.npy"))
                return np.lib.format.read_array(content, allow_pickle=False)

            tree = _restore(header["tree"], array)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, EOFError, OSError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{path} is truncated, damaged or not a checkpoint of aktis.rl: {error}"
            "\nhint: take the previous checkpoint, if there is one"
        ) from error
    if not isinstance(tree, dict):
        raise CheckpointError(
            f"{path} is not a checkpoint of aktis.rl\nhint: give a file that `save` or `train` has written"
        )
    return tree


def _flatten(value: Any, arrays: list[Any]) -> Any:
    """The value for JSON; its arrays go to `arrays`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        pairs = {str(key): _flatten(part, arrays) for key, part in value.items()}
        if len(pairs) != len(value) or any(mark in pairs for mark in _MARKS):
            raise ValueError(f"keys of a dict cannot be saved: {list(value)}\nhint: use texts as keys")
        # Keys of other types than str would come back as text.
        if all(isinstance(key, str) for key in value):
            return pairs
        return {"$pairs": [[_flatten(key, arrays), _flatten(part, arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_flatten(part, arrays) for part in value]
    if isinstance(value, bytes):
        arrays.append(np.frombuffer(value, np.uint8))
        return {"$bytes": len(arrays) - 1}
    if isinstance(value, np.generic):
        return _flatten(value.item(), arrays)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(
                "an array of Python objects cannot be saved in a checkpoint"
                "\nhint: convert it to an array of numbers"
            )
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        arrays.append(value.detach().cpu().numpy())
        return {"$tensor": len(arrays) - 1}
    raise TypeError(
        f"a {type(value).__name__} cannot be saved in a checkpoint"
        "\nhint: keep numbers, texts, lists, dicts, arrays and tensors in the state"
    )


def _restore(value: Any, array: Any) -> Any:
    if isinstance(value, list):
        return [_restore(part, array) for part in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(mark, content)] = value.items()
        if mark == "$array":
            return array(content)
        if mark == "$bytes":
            return array(content).tobytes()
        if mark == "$tensor":
            import torch

            return torch.from_numpy(array(content))
        if mark == "$pairs":
            return {_restore(key, array): _restore(part, array) for key, part in content}
    return {key: _restore(part, array) for key, part in value.items()}
