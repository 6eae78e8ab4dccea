"""Which rows of a file are new, changed or the same: against the version before, and among themselves."""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType

import orjson
from django.conf import settings

from apps.gym.items import TaskRow
from apps.tasks.models import DatasetVersion


def hash_text(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()


def key_of(external_id: str, row_hash: str) -> str:
    """What makes a task the same in another version: its own id; without one, its row."""
    return hash_text(b"id:" + external_id.encode("utf-8", "surrogatepass")) if external_id else row_hash


@dataclass(frozen=True, slots=True)
class Known:
    """A task of the base version; `count` tells whether its key is its own."""

    index: int
    row_hash: str
    split: str = ""
    tags: tuple[str, ...] = ()
    is_retired: bool = False
    count: int = 1


class Base:
    """The version before, asked for a chunk of keys at a time: it may hold millions."""

    def __init__(self, version: DatasetVersion | None) -> None:
        self._version = version

    def find(self, keys: Iterable[str]) -> dict[str, Known]:
        if self._version is None:
            return {}
        found: dict[str, Known] = {}
        rows = self._version.tasks.filter(key__in=list(keys)).order_by("index")
        columns = ("key", "index", "row_hash", "split", "tags_text", "is_retired")
        for key, index, row_hash, split, tags, is_retired in rows.values_list(*columns).iterator():
            earlier = found.get(key)
            if earlier is None:
                found[key] = Known(index, row_hash, split, tuple(filter(None, tags.split("\n"))), is_retired)
            else:
                found[key] = Known(earlier.index, row_hash, count=2)
        return found

    def rows(self, indexes: Iterable[int]) -> Iterator[tuple[int, TaskRow]]:
        """The rows of some of its tasks, with their places."""
        if self._version is not None and (wanted := list(indexes)):
            rows = self._version.tasks.filter(index__in=wanted).order_by("index")
            for index, text in rows.values_list("index", "row_json").iterator(chunk_size=100):
                yield index, orjson.loads(text)


class Seen:
    """The keys of the file so far, in a file of its own: memory stays flat, whatever the number of rows."""

    def __enter__(self) -> "Seen":
        folder = Path(settings.FILE_UPLOAD_TEMP_DIR)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(dir=folder, prefix="keys-")
        self._database = sqlite3.connect(Path(self._folder.name) / "keys.sqlite3", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE seen (key BLOB PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        self._database.execute("BEGIN")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._database.close()
        self._folder.cleanup()

    def first_line(self, key: str, line: int) -> int | None:
        """The line where this key was seen first; None where that is now."""
        mark = bytes.fromhex(key)
        if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (mark, line)).rowcount:
            return None
        found: tuple[int] = self._database.execute("SELECT line FROM seen WHERE key = ?", (mark,)).fetchone()
        return found[0]
