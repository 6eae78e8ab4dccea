"""Write a file of JSON lines that is either whole or not there, hashing while writing."""

import hashlib
import os
from pathlib import Path
from typing import Any

import orjson


class JsonLinesFile:
    """Lines go to a hidden file beside `path`; `publish` puts it in place, `discard` removes it."""

    def __init__(self, path: Path, *, writer: str) -> None:
        """`writer` tells writers of the same path apart."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows = 0
        self.bytes = 0
        self.longest_row = 0
        self._hash = hashlib.sha256()
        self._part = path.with_name(f".{path.name}.{writer}.part")
        self._file = self._part.open("wb", buffering=1024**2)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write_line(self, line: bytes) -> None:
        """`line` ends with a newline."""
        self._file.write(line)
        self._hash.update(line)
        self.rows += 1
        self.bytes += len(line)
        self.longest_row = max(self.longest_row, len(line))

    def finish(self) -> None:
        """Everything on the disk, not yet in place."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def publish(self, manifest: dict[str, Any]) -> None:
        """The manifest first: a file that is there always has one."""
        write_manifest(manifest_path(self.path), manifest)
        self._part.replace(self.path)
        _sync_folder(self.path.parent)

    def discard(self) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


def manifest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.manifest.json")


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(orjson.dumps(manifest, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
