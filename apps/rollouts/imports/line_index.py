"""Index on disk of the lines to import, by task and rollout, because there may be millions."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE task (
    number INTEGER PRIMARY KEY, start INTEGER NOT NULL, given INTEGER, rollouts INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE place (position INTEGER PRIMARY KEY, task INTEGER NOT NULL UNIQUE);
CREATE TABLE prompt (
    hash BLOB NOT NULL, identity TEXT NOT NULL, content BLOB NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (hash, identity, content, number)
) WITHOUT ROWID;
CREATE TABLE given (number INTEGER PRIMARY KEY, task INTEGER NOT NULL);
CREATE TABLE own (hash BLOB PRIMARY KEY, task INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE rollout (
    task INTEGER NOT NULL, repeat INTEGER NOT NULL, file INTEGER NOT NULL, line INTEGER NOT NULL,
    failed INTEGER NOT NULL, PRIMARY KEY (task, repeat)
) WITHOUT ROWID;
CREATE TABLE numbered (number INTEGER NOT NULL, task INTEGER NOT NULL, PRIMARY KEY (number, task)) WITHOUT ROWID;
CREATE TABLE seen (file INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (file, hash)) WITHOUT ROWID;
"""
MAX_REPEAT = 2**31 - 1


class LineIndex:
    """A temporary SQLite database in `folder`. Its memory use is a few megabytes at any size."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "lines.sqlite3", isolation_level=None)
        self._database.executescript(_SCHEMA)
        self._database.execute("BEGIN")
        self.lengths: set[int] = set()
        """The lengths of all prompts, in texts."""
        self.renumbered = 0
        """Lines whose own rollout number was already used for the task."""
        self._unnumbered = 0
        self._tasks = 0

    def close(self) -> None:
        self._database.close()

    # -- tasks

    def add_task(self, start: int, *, given: int | None = None) -> int:
        """Add a task whose row begins at byte `start`; `given` is its number in the file. Return its number here."""
        number = self._tasks
        self._tasks += 1
        self._database.execute("INSERT INTO task (number, start, given) VALUES (?, ?, ?)", (number, start, given))
        return number

    def add_prompt(self, task: int, *, prompt: bytes, length: int, identity: str, content: bytes) -> None:
        """Let rollouts find the task by the hash of its prompt of `length` texts."""
        self._database.execute("INSERT INTO prompt VALUES (?, ?, ?, ?)", (prompt, identity, content, task))
        self.lengths.add(length)

    def order_tasks(self) -> Iterator[int]:
        """Return the row offsets of the tasks in the order in which they are stored.

        Rows with task numbers are ordered by these, as in the source.
        """
        self._database.execute(
            "INSERT INTO place (position, task) "
            "SELECT row_number() OVER (ORDER BY given IS NOT NULL, given, number) - 1, number FROM task"
        )
        starts = self._database.execute("SELECT start FROM place JOIN task ON number = task ORDER BY position")
        yield from (start for (start,) in starts)

    def tasks_asking(self, prompt: bytes, most: int, identity: str = "") -> list[tuple[bytes, int]]:
        """Return content and number of up to `most` different tasks with this prompt, in the order of the rows.

        With an `identity`, tasks of another one are left out.
        """
        query = (
            "SELECT content, min(number) FROM prompt WHERE hash = ? AND (? = '' OR identity IN (?, '')) "
            "GROUP BY content ORDER BY 2 LIMIT ?"
        )
        return self._database.execute(query, (prompt, identity, identity, most)).fetchall()

    def has_equal(self, prompt: bytes, content: bytes, number: int) -> bool:
        """Return True if the task `number` has this prompt and content."""
        return (
            self._one("SELECT 1 FROM prompt WHERE hash = ? AND content = ? AND number = ?", prompt, content, number)
            == 1
        )

    def name_task(self, index: int, task: int) -> None:
        self._database.execute("INSERT INTO given VALUES (?, ?)", (index, task))

    def named_task(self, index: int) -> int | None:
        return self._one("SELECT task FROM given WHERE number = ?", index)

    def start_of(self, task: int) -> int:
        """Return the offset of the row of a task."""
        return self._one("SELECT start FROM task WHERE number = ?", task) or 0

    def own_task(self, key: bytes) -> int | None:
        return self._one("SELECT task FROM own WHERE hash = ?", key)

    def keep_own_task(self, key: bytes, task: int) -> None:
        self._database.execute("INSERT OR IGNORE INTO own VALUES (?, ?)", (key, task))

    # -- rollouts

    def add_rollout(self, *, task: int, repeat: int | None, file: int, line: int, failed: bool) -> bool:
        """Add a rollout. Return True if the line counts as a rollout of its own.

        One line counts per task and number. A failure gives way to any other line, because a collection retries failed
        attempts and keeps the failures. A line without a number, or with a number in use, gets the next free one.
        """
        if repeat is not None:
            taken = self._one("SELECT failed FROM rollout WHERE task = ? AND repeat = ?", task, repeat)
            if taken is None:
                self._insert(task, repeat, file, line, failed)
                return True
            if taken:
                change = "UPDATE rollout SET file = ?, line = ?, failed = ? WHERE task = ? AND repeat = ?"
                self._database.execute(change, (file, line, failed, task, repeat))
                return False
            if failed:
                return False
            self.renumbered += 1
        free = self._one("SELECT rollouts FROM task WHERE number = ?", task) or 0
        while self._one("SELECT 1 FROM rollout WHERE task = ? AND repeat = ?", task, free):
            free += 1
        self._insert(task, free, file, line, failed)
        return True

    def note_line(self, file: int, digest: bytes) -> bool:
        """Note a line by its hash. Return False if the file has an identical line before it."""
        added = self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (file, digest))
        return bool(added.rowcount)

    def note_number(self, number: int | None, repeat: int | None, *, task: int) -> None:
        """Record the numbers that a line has for its task and its rollout."""
        if number is None or repeat is None:
            self._unnumbered += 1
        else:
            self._database.execute("INSERT OR IGNORE INTO numbered VALUES (?, ?)", (number, task))

    def fits_together(self) -> bool:
        """Return True if the lines are numbered consistently.

        All must have numbers, none twice, and each task one number.
        """
        query = "SELECT count(*) = count(DISTINCT number) AND count(*) = count(DISTINCT task) FROM numbered"
        return not self._unnumbered and not self.renumbered and bool(self._one(query))

    def largest_group(self) -> int:
        return self._one("SELECT max(rollouts) FROM task") or 0

    def rollouts(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (file, line, position of the task, repeat) in the order of the lines. Call order_tasks() first."""
        self._database.execute("CREATE UNIQUE INDEX IF NOT EXISTS line ON rollout (file, line)")
        query = "SELECT file, line, position, repeat FROM rollout JOIN place USING (task) ORDER BY file, line"
        yield from self._database.execute(query)

    def _insert(self, task: int, repeat: int, file: int, line: int, failed: bool) -> None:
        self._database.execute("INSERT INTO rollout VALUES (?, ?, ?, ?, ?)", (task, repeat, file, line, failed))
        self._database.execute("UPDATE task SET rollouts = rollouts + 1 WHERE number = ?", (task,))

    def _one(self, query: str, *values: object) -> int | None:
        row = self._database.execute(query, values).fetchone()
        return None if row is None else row[0]
