"""Row files, and the JSON lines encoding, optionally gzipped."""

import gzip
import hashlib
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from apps.gym.json_lines import escape_line_ends

GZIP_LEVEL = 3
"""13,000 rows per second, instead of 4,000 at level 9, for files that are a few per cent larger."""


class RowFile(ABC):
    """A row file of one split in a hidden folder. Sizes are in bytes."""

    def __init__(self, path: Path, *, split: str) -> None:
        self.path = path
        self.split = split
        self.rows = 0
        self.longest_row = 0

    @abstractmethod
    def write(self, rows: list[dict[str, Any]], encoded: list[bytes]) -> None:
        """Append rows. `encoded` has each row as JSON."""

    @abstractmethod
    def finish(self) -> None:
        """Flush the file to disk."""

    @abstractmethod
    def close(self) -> None:
        """Close the file without flushing; errors of a full disk are suppressed."""

    def entry(self) -> dict[str, Any]:
        """Return the manifest entry of the finished file."""
        return {
            "name": self.path.name,
            "split": self.split,
            "rows": self.rows,
            "bytes": self.path.stat().st_size,
            "sha256": digest_of(self.path),
            "longest_row_bytes": self.longest_row,
        }


class JsonLinesFile(RowFile):
    """One JSON object per line."""

    def __init__(self, path: Path, *, split: str, gzipped: bool = False) -> None:
        super().__init__(path, split=split)
        self._raw = path.open("wb", buffering=1024**2)
        # No file name or time in the gzip header, so that equal rows give equal bytes.
        self._file: BinaryIO = self._raw
        if gzipped:
            self._file = cast(BinaryIO, gzip.GzipFile("", "wb", GZIP_LEVEL, self._raw, mtime=0))

    def write(self, rows: list[dict[str, Any]], encoded: list[bytes]) -> None:
        lines = [escape_line_ends(row) + b"\n" for row in encoded]
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
        # Drop the buffer: flushing to a full disk would raise again.
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
    """Sync a folder to disk, so that renames in it are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
