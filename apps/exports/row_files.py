"""Files of rows: JSON lines, gzipped or not, and what every file of rows is."""

import gzip
import hashlib
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

GZIP_LEVEL = 3
"""13,000 rows a second instead of 4,000 at the default of 9, for a few percent of size."""


class RowFile(ABC):
    """One file of one split, in a folder that nobody sees yet. Sizes are bytes."""

    def __init__(self, path: Path, *, split: str) -> None:
        self.path = path
        self.split = split
        self.rows = 0
        self.longest_row = 0

    @abstractmethod
    def write(self, rows: list[dict[str, Any]], encoded: list[bytes]) -> None:
        """Append rows; `encoded` is each of them as JSON."""

    @abstractmethod
    def finish(self) -> None:
        """Everything on the disk."""

    @abstractmethod
    def close(self) -> None:
        """Whatever was written; nothing is promised of it, and a full disk refuses nothing."""

    def entry(self) -> dict[str, Any]:
        """What the manifest says of the file, once it is finished."""
        return {
            "name": self.path.name,
            "split": self.split,
            "rows": self.rows,
            "bytes": self.path.stat().st_size,
            "sha256": digest_of(self.path),
            "longest_row_bytes": self.longest_row,
        }


class JsonLinesFile(RowFile):
    """One JSON object a line."""

    def __init__(self, path: Path, *, split: str, gzipped: bool = False) -> None:
        super().__init__(path, split=split)
        self._raw = path.open("wb", buffering=1024**2)
        # No name and no time in the header: the same rows are the same bytes.
        self._file: BinaryIO = self._raw
        if gzipped:
            self._file = cast(BinaryIO, gzip.GzipFile("", "wb", GZIP_LEVEL, self._raw, mtime=0))

    def write(self, rows: list[dict[str, Any]], encoded: list[bytes]) -> None:
        lines = [row + b"\n" for row in encoded]
        self._file.writelines(lines)
        self.rows += len(lines)
        self.longest_row = max(self.longest_row, *map(len, lines))

    def finish(self) -> None:
        if self._file is not self._raw:
            self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()

    def close(self) -> None:
        # What is still held in memory is given up: a full disk would refuse it here once more.
        with suppress(OSError):
            self._raw.close()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    with path.open("wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
