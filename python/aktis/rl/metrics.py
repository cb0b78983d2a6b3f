"""Where the figures of a run go: a live line on the terminal, a CSV file, an event file of TensorBoard."""

import csv
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, TextIO

#: Between two updates of the live line.
LINE_SECONDS = 0.1

#: Columns that every algorithm has; its own follow.
COLUMNS = (
    "iteration",
    "steps",
    "seconds",
    "episodes",
    "mean_return",
    "evaluation_return",
    "steps_per_second",
    "faults",
)


class ProgressLine:
    """One line on a terminal that is written over and over; nothing where the stream is not a terminal."""

    def __init__(self, wanted: bool | None, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.active = self.stream.isatty() if wanted is None else wanted
        self.shown_at = 0.0
        self.width = 0

    def show(self, text: str, *, now: bool = False) -> None:
        """Shows the text, unless the last one is too recent."""
        if not self.active or (not now and time.monotonic() - self.shown_at < LINE_SECONDS):
            return
        self.shown_at = time.monotonic()
        self.stream.write("\r" + text.ljust(self.width))
        self.stream.flush()
        self.width = len(text)

    def close(self, text: str) -> None:
        """Leaves the last text on the terminal."""
        self.show(text, now=True)
        if self.active:
            self.stream.write("\n")
            self.stream.flush()


class CsvFile:
    """A table with one row per iteration. A resumed run drops the rows behind its checkpoint and goes on."""

    def __init__(self, path: Path, columns: tuple[str, ...], iteration: int) -> None:
        kept: list[dict[str, str]] = []
        if path.exists() and iteration > 0:
            with path.open(newline="") as file:
                kept = [row for row in csv.DictReader(file) if int(row["iteration"]) <= iteration]
        self.file = path.open("w", newline="")
        self.writer = csv.DictWriter(self.file, columns, restval="", extrasaction="ignore")
        self.writer.writeheader()
        self.writer.writerows(kept)

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row. Missing columns stay empty."""
        self.writer.writerow({name: _short(value) for name, value in row.items() if value is not None})
        self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()


class TensorBoardFile:
    """An event file that TensorBoard reads: records of protocol buffers, each with its checksums."""

    def __init__(self, folder: Path) -> None:
        now = time.time()
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        self.file = (folder / name).open("wb")
        self._record(_number(1, now) + _text(3, "brain.Event:2"))

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Adds one point to the curve of each tag."""
        summary = b"".join(
            _bytes(1, _text(1, tag) + b"\x15" + struct.pack("<f", value))
            for tag, value in values.items()
            if isinstance(value, int | float)
        )
        self._record(_number(1, time.time()) + b"\x10" + _varint(step) + _bytes(5, summary))
        self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def _record(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        checked = (
            length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
        )
        self.file.write(checked)


def masked_crc32c(data: bytes) -> int:
    """The checksum of TensorFlow's record files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _crc32c_table()


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
