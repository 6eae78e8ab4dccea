"""Which rows of a file are new, changed or the same: against the version before, and among themselves."""

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import TracebackType

import orjson
from django.conf import settings
from django.db.models import Count, Min

from apps.accounts.keyset_reading import read_by_key
from apps.gym.traces.items import TaskRow
from apps.tasks.models import DatasetVersion


def hash_text(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()


def key_of(external_id: str, row_hash: str) -> str:
    """What makes a task the same in another version: its own id; without one, its row."""
    return hash_text(b"id:" + external_id.encode("utf-8", "surrogatepass")) if external_id else row_hash


@dataclass(slots=True)
class Known:
    """The first task of the base version with a key; `count` tells whether the key is its own."""

    index: int
    split: str = ""
    tags: tuple[str, ...] = ()
    is_retired: bool = False
    count: int = 0
    copies: Counter[str] = field(default_factory=Counter)
    """By their hashes, how many tasks of the key have a row that was asked for."""


class Base:
    """The version before, asked for a chunk of keys at a time: it may hold millions."""

    def __init__(self, version: DatasetVersion | None) -> None:
        self._version = version

    def find(self, wanted: Collection[tuple[str, str]]) -> dict[str, Known]:
        """By their keys, what is known of rows, which are keys and hashes."""
        if self._version is None:
            return {}
        # Counted by the database: the version may have a million tasks of one key.
        tasks = self._version.tasks.filter(key__in={key for key, _ in wanted}).order_by()
        groups = tasks.values_list("key").annotate(Min("index"), Count("pk"))
        found = {key: Known(index, count=count) for key, index, count in groups}
        same = tasks.filter(row_hash__in={row_hash for _, row_hash in wanted})
        for key, row_hash, count in same.values_list("key", "row_hash").annotate(Count("pk")):
            found[key].copies[row_hash] = count
        firsts = self._version.tasks.filter(index__in=[known.index for known in found.values()])
        for key, split, tags, is_retired in firsts.values_list("key", "split", "tags_text", "is_retired"):
            known = found[key]
            known.split, known.tags, known.is_retired = split, tuple(filter(None, tags.split("\n"))), is_retired
        return found

    def rows(self, indexes: Iterable[int]) -> Iterator[tuple[int, TaskRow]]:
        """The rows of some of its tasks, with their places."""
        if self._version is not None and (wanted := list(indexes)):
            rows = self._version.tasks.filter(index__in=wanted).values_list("index", "row_json")
            for index, text in read_by_key(rows, by="index", size=100):
                yield index, orjson.loads(text)


class Seen:
    """The keys of the file so far, in a file of its own: memory stays flat, whatever the number of rows.

    Of rows with one key, as many as stand in the base too are unchanged; of the others there and here, as many as there
    are on both sides are updated.
    """

    def __enter__(self) -> "Seen":
        folder = Path(settings.FILE_UPLOAD_TEMP_DIR)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(dir=folder, prefix="keys-")
        self._database = sqlite3.connect(Path(self._folder.name) / "keys.sqlite3", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        # `row` is the first one's, where it is not the key itself; `rows` and `same` count those that are kept.
        columns = "key BLOB PRIMARY KEY, line INTEGER, row BLOB, rows INTEGER, same INTEGER"
        self._database.execute(f"CREATE TABLE seen ({columns}) WITHOUT ROWID")
        # Of keys that stand several times: the other rows.
        columns = "key BLOB, row BLOB, rows INTEGER, PRIMARY KEY (key, row)"
        self._database.execute(f"CREATE TABLE later ({columns}) WITHOUT ROWID")
        self._database.execute("BEGIN")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._database.close()
        self._folder.cleanup()

    def first_line(self, key: str, row_hash: str, line: int, known: Known | None) -> int | None:
        """The line where this key was seen first; None where that is now."""
        mark, row = bytes.fromhex(key), None if row_hash == key else bytes.fromhex(row_hash)
        same = 1 if known and known.copies[row_hash] else 0
        values = (mark, line, row, same)
        if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, 1, ?)", values).rowcount:
            return None
        found: tuple[int] = self._database.execute("SELECT line FROM seen WHERE key = ?", (mark,)).fetchone()
        return found[0]

    def count_later(self, key: str, row_hash: str, known: Known | None) -> dict[str, int]:
        """What one more row of a key that was seen before makes new, updated or unchanged: what is the same may show
        only now."""
        mark, row = bytes.fromhex(key), bytes.fromhex(row_hash)
        first, rows, same = self._database.execute("SELECT row, rows, same FROM seen WHERE key = ?", (mark,)).fetchone()
        found = self._database.execute("SELECT rows FROM later WHERE key = ? AND row = ?", (mark, row)).fetchone()
        equal = (found[0] if found else 0) + ((first or mark) == row)
        before = _count(rows, same, known)
        same_now = same + (equal < known.copies[row_hash] if known else 0)
        self._database.execute("UPDATE seen SET rows = rows + 1, same = ? WHERE key = ?", (same_now, mark))
        upsert = "INSERT INTO later VALUES (?, ?, 1) ON CONFLICT (key, row) DO UPDATE SET rows = rows + 1"
        self._database.execute(upsert, (mark, row))
        after = _count(rows + 1, same_now, known)
        return {name: after[name] - before[name] for name in after}


def _count(rows: int, same: int, known: Known | None) -> dict[str, int]:
    """Of so many rows with one key, of which so many are the same as in the base."""
    updated = min(rows, known.count) - same if known else 0
    return {"new": rows - same - updated, "updated": updated, "unchanged": same}
