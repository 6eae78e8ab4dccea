"""Classify the rows of a file as new, updated or unchanged relative to the previous version, and find duplicates."""

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
from apps.gym.tasks.task_rows import ParsedTask
from apps.gym.traces.items import TaskRow
from apps.tasks.models import DatasetVersion


def hash_text(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()


def key_of(external_id: str, row_hash: str) -> str:
    """Return the identity of a task across dataset versions: its id, or else the hash of its row."""
    return hash_text(b"id:" + external_id.encode("utf-8", "surrogatepass")) if external_id else row_hash


@dataclass(slots=True)
class BaseTask:
    """The first task of the base version with a key. `count` is the number of tasks with this key."""

    index: int
    split: str = ""
    tags: tuple[str, ...] = ()
    is_retired: bool = False
    count: int = 0
    copies: Counter[str] = field(default_factory=Counter)
    """Number of tasks with this key by row hash, for the requested hashes."""


class Base:
    """The previous version, which may have millions of tasks. Keys are looked up in chunks."""

    def __init__(self, version: DatasetVersion | None) -> None:
        self._version = version

    def find(self, wanted: Collection[tuple[str, str]]) -> dict[str, BaseTask]:
        """Return the tasks with these keys, without their rows."""
        if self._version is None:
            return {}
        # Counted in the database: a version may have a million tasks with one key.
        tasks = self._version.tasks.filter(key__in={key for key, _ in wanted}).order_by()
        groups = tasks.values_list("key").annotate(Min("index"), Count("pk"))
        found = {key: BaseTask(index, count=count) for key, index, count in groups}
        same = tasks.filter(row_hash__in={row_hash for _, row_hash in wanted})
        for key, row_hash, count in same.values_list("key", "row_hash").annotate(Count("pk")):
            found[key].copies[row_hash] = count
        firsts = self._version.tasks.filter(index__in=[known.index for known in found.values()])
        for key, split, tags, is_retired in firsts.values_list("key", "split", "tags_text", "is_retired"):
            known = found[key]
            known.split, known.tags, known.is_retired = split, tuple(filter(None, tags.split("\n"))), is_retired
        return found

    def rows(self, indexes: Iterable[int]) -> Iterator[tuple[int, TaskRow]]:
        """Yield the rows at these positions."""
        if self._version is not None and (wanted := list(indexes)):
            rows = self._version.tasks.filter(index__in=wanted).values_list("index", "row_json")
            for index, text in read_by_key(rows, by="index", size=100):
                yield index, orjson.loads(text)


class SeenKeys:
    """The keys seen in the file so far, in a temporary database, for constant memory.

    Rows with the same key are matched by content. Equal rows count as unchanged; the remaining ones of both sides are
    counted as updated, in pairs.
    """

    def __enter__(self) -> "SeenKeys":
        folder = Path(settings.FILE_UPLOAD_TEMP_DIR)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(dir=folder, prefix="keys-")
        self._database = sqlite3.connect(Path(self._folder.name) / "keys.sqlite3", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        # `row` is the first row, unless it equals the key; `rows` and `same` count kept rows.
        columns = "key BLOB PRIMARY KEY, line INTEGER, row BLOB, rows INTEGER, same INTEGER"
        self._database.execute(f"CREATE TABLE seen ({columns}) WITHOUT ROWID")
        # Other rows of keys that occur several times.
        columns = "key BLOB, row BLOB, rows INTEGER, PRIMARY KEY (key, row)"
        self._database.execute(f"CREATE TABLE later ({columns}) WITHOUT ROWID")
        self._database.execute("BEGIN")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._database.close()
        self._folder.cleanup()

    def first_line(self, key: str, row_hash: str, line: int, known: BaseTask | None) -> int | None:
        """Return the line where this key occurred first, or None for its first occurrence."""
        mark, row = bytes.fromhex(key), None if row_hash == key else bytes.fromhex(row_hash)
        same = 1 if known and known.copies[row_hash] else 0
        values = (mark, line, row, same)
        if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, 1, ?)", values).rowcount:
            return None
        found: tuple[int] = self._database.execute("SELECT line FROM seen WHERE key = ?", (mark,)).fetchone()
        return found[0]

    def count_later(self, key: str, row_hash: str, known: BaseTask | None) -> dict[str, int]:
        """Return how a further row with a known key changes the counts.

        It may change each of new, updated and unchanged: an equal row may follow a different one.
        """
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


def _count(rows: int, same: int, known: BaseTask | None) -> dict[str, int]:
    """Return the counts for `rows` rows with one key, of which `same` are also in the base."""
    updated = min(rows, known.count) - same if known else 0
    return {"new": rows - same - updated, "updated": updated, "unchanged": same}


@dataclass(frozen=True, slots=True)
class Marks:
    split: str
    tags: tuple[str, ...]
    is_retired: bool = False


def carry_marks(task: ParsedTask, before: BaseTask | None, *, row_marks: Marks | None, chosen: str) -> Marks:
    """Return the marks of a task in the new version.

    `before` is the previous task, and `row_marks` are the marks in its row. Marks beyond these were set by users and
    are kept. `chosen` is the split for rows without one.
    """
    if before is None or row_marks is None:
        return Marks(task.split or chosen, task.tags)
    removed = set(row_marks.tags) - set(before.tags)
    added = [tag for tag in before.tags if tag not in row_marks.tags]
    tags = dict.fromkeys(tag for tag in [*task.tags, *added] if tag not in removed)
    return Marks(_split(task.split, before.split, row_marks.split, chosen), tuple(tags), before.is_retired)


def _split(named: str, before: str, row_marks: str, chosen: str) -> str:
    if named:
        # If the row's value is unchanged, the user's split is kept; a changed value overrides it.
        return before if named == row_marks else named
    return chosen or (before if before != row_marks else "")
