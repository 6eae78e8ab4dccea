"""Which line of the files to import is which rollout of which task: on disk, since there may be millions of lines."""

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
CREATE TABLE prompt (hash BLOB NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (hash, number)) WITHOUT ROWID;
CREATE TABLE given (number INTEGER PRIMARY KEY, task INTEGER NOT NULL);
CREATE TABLE own (hash BLOB PRIMARY KEY, task INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE rollout (
    task INTEGER NOT NULL, repeat INTEGER NOT NULL, file INTEGER NOT NULL, line INTEGER NOT NULL,
    failed INTEGER NOT NULL, PRIMARY KEY (task, repeat)
) WITHOUT ROWID;
CREATE TABLE numbered (number INTEGER NOT NULL, task INTEGER NOT NULL, PRIMARY KEY (number, task)) WITHOUT ROWID;
CREATE TABLE claimed (
    file INTEGER NOT NULL, number INTEGER NOT NULL, repeat INTEGER NOT NULL, line INTEGER NOT NULL,
    PRIMARY KEY (file, number, repeat)
) WITHOUT ROWID;
"""
MAX_REPEAT = 2**31 - 1


class LineIndex:
    """A small database of its own in `folder`; its memory is a few megabytes whatever it holds."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "lines.sqlite3", isolation_level=None)
        self._database.executescript(_SCHEMA)
        self._database.execute("BEGIN")
        self.lengths: set[int] = set()
        """How many texts the prompts have."""
        self.renumbered = 0
        """Lines whose own number another rollout of the task had."""
        self._unnumbered = 0
        self._tasks = 0

    def close(self) -> None:
        self._database.close()

    # -- tasks

    def add_task(self, start: int, *, given: int | None = None, prompt: bytes = b"", length: int = 0) -> int:
        """A task whose row begins at byte `start`. `given` is the number that the file gives it, `prompt` the hash of
        what it asks, where that finds it."""
        number = self._tasks
        self._tasks += 1
        self._database.execute("INSERT INTO task (number, start, given) VALUES (?, ?, ?)", (number, start, given))
        if prompt:
            self._database.execute("INSERT INTO prompt VALUES (?, ?)", (prompt, number))
            self.lengths.add(length)
        return number

    def order_tasks(self) -> Iterator[int]:
        """Where their rows begin, in the order in which they are to be stored: those with numbers by these, as they
        were where they come from."""
        self._database.execute(
            "INSERT INTO place (position, task) "
            "SELECT row_number() OVER (ORDER BY given IS NOT NULL, given, number) - 1, number FROM task"
        )
        starts = self._database.execute("SELECT start FROM place JOIN task ON number = task ORDER BY position")
        yield from (start for (start,) in starts)

    def tasks_asking(self, prompt: bytes, preferred: int | None) -> int | None:
        """The task with this prompt, the one of the preferred number if it is among several, else the first."""
        if preferred is not None:
            found = self._one("SELECT number FROM prompt WHERE hash = ? AND number = ?", prompt, preferred)
            if found is not None:
                return found
        return self._one("SELECT number FROM prompt WHERE hash = ? ORDER BY number LIMIT 1", prompt)

    def name_task(self, index: int, task: int) -> None:
        self._database.execute("INSERT INTO given VALUES (?, ?)", (index, task))

    def named_task(self, index: int) -> int | None:
        return self._one("SELECT task FROM given WHERE number = ?", index)

    def own_task(self, key: bytes) -> int | None:
        return self._one("SELECT task FROM own WHERE hash = ?", key)

    def keep_own_task(self, key: bytes, task: int) -> None:
        self._database.execute("INSERT OR IGNORE INTO own VALUES (?, ?)", (key, task))

    # -- rollouts

    def add_rollout(self, *, task: int, repeat: int | None, file: int, line: int, failed: bool) -> bool:
        """Whether the line is a rollout of its own.

        Of one task and number there is one: a failure gives way to whatever else there is of it, since a collection
        attempts again what failed, and keeps the failures. Without a number, or with one that is taken, a line gets
        the next that is free.
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

    def claim_place(self, number: int, repeat: int, *, file: int, line: int) -> int:
        """The first line of the file that said to be this rollout of the task of this number."""
        self._database.execute("INSERT OR IGNORE INTO claimed VALUES (?, ?, ?, ?)", (file, number, repeat, line))
        claimed = "SELECT line FROM claimed WHERE file = ? AND number = ? AND repeat = ?"
        return self._one(claimed, file, number, repeat) or line

    def note_number(self, number: int | None, repeat: int | None, *, task: int) -> None:
        """What a line says to be the numbers of its task and of its rollout."""
        if number is None or repeat is None:
            self._unnumbered += 1
        else:
            self._database.execute("INSERT OR IGNORE INTO numbered VALUES (?, ?)", (number, task))

    def fits_together(self) -> bool:
        """Whether the lines number their rollouts as one run does: each of them, none twice, and each task by a number
        of its own."""
        query = "SELECT count(*) = count(DISTINCT number) AND count(*) = count(DISTINCT task) FROM numbered"
        return not self._unnumbered and not self.renumbered and bool(self._one(query))

    def largest_group(self) -> int:
        return self._one("SELECT max(rollouts) FROM task") or 0

    def rollouts(self) -> Iterator[tuple[int, int, int, int]]:
        """(file, line, position of the task, repeat), in the order of the lines, after the tasks were put in order."""
        self._database.execute("CREATE UNIQUE INDEX IF NOT EXISTS line ON rollout (file, line)")
        query = "SELECT file, line, position, repeat FROM rollout JOIN place USING (task) ORDER BY file, line"
        yield from self._database.execute(query)

    def _insert(self, task: int, repeat: int, file: int, line: int, failed: bool) -> None:
        self._database.execute("INSERT INTO rollout VALUES (?, ?, ?, ?, ?)", (task, repeat, file, line, failed))
        self._database.execute("UPDATE task SET rollouts = rollouts + 1 WHERE number = ?", (task,))

    def _one(self, query: str, *values: object) -> int | None:
        row = self._database.execute(query, values).fetchone()
        return None if row is None else row[0]
