"""Run an untrusted query: read-only on one database, with limits on steps and rows.

SQLite runs inside the process, so SQLite itself enforces every limit. An authorizer limits the operations, a step count
(equal on every machine) limits the time, and length limits of values and rows limit the memory.
"""

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from apps.gym.redaction.shortening import cut

Value = None | int | float | str

LONGEST_QUERY = 5_000
_STEPS = 1_000_000
_STEPS_PER_LOOK = 1_000
_SECONDS = 10.0
"""Time limit for a heavily loaded machine. An honest query takes milliseconds."""
_LIMITS = {
    # Sorting the maximum number of rows of this length bounds the memory of a query to about 170 MB.
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: LONGEST_QUERY,
    sqlite3.SQLITE_LIMIT_COLUMN: 60,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 12,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 60,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_USUAL = (
    "abs avg cast ceil ceiling coalesce concat count cume_dist date datetime dense_rank first_value floor format glob "
    "group_concat ifnull iif instr julianday lag last_value lead length like lower ltrim max min mod nth_value ntile "
    "nullif percent_rank printf rank replace round row_number rtrim sign strftime string_agg substr substring sum time "
    "total trim typeof upper"
)
_FUNCTIONS = frozenset(_USUAL.split())
"""No functions that are random, make values of any length, load code, or reveal anything about the process."""
_OF_TIME = ("date", "datetime", "julianday", "strftime", "time")
_NOT_PURE = frozenset({"now", "subsec", "subsecond", "localtime", "utc"})
"""Modifiers that use this machine's clock or time zone: the same query would not always return the same rows."""
_EXPLAINS = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)
_MAY = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})


class QueryRefused(Exception):
    """Raised when a query cannot be run or exceeded a limit. The message is for its author."""


class Table(NamedTuple):
    """The result of a query. `cut` is True if there were more rows."""

    columns: list[str]
    rows: list[tuple[Value, ...]]
    cut: bool


def run_query(database: bytes, query: str, *, most_rows: int) -> Table:
    """Run a query on a serialised database, which is not changed. Raises QueryRefused."""
    if len(query) > LONGEST_QUERY:
        raise QueryRefused(f"the query has {len(query):,} characters; at most {LONGEST_QUERY:,} are read")
    if _EXPLAINS.match(query):
        raise QueryRefused("EXPLAIN is not allowed: give one SELECT")
    with closing(sqlite3.connect(":memory:")) as connection, closing(sqlite3.connect(":memory:")) as clockless:
        connection.deserialize(database)
        watch = _guard(connection, clockless)
        try:
            cursor = connection.execute(query)
            if cursor.description is None:
                raise QueryRefused("this is not a query: give one SELECT")
            rows = cursor.fetchmany(most_rows + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as problem:
            raise QueryRefused(watch.told or _tell(problem)) from None
        columns = [str(column[0]) for column in cursor.description]
        return Table(columns, [tuple(map(_plain, row)) for row in rows[:most_rows]], len(rows) > most_rows)


class _Watch:
    """Count the steps of one query."""

    def __init__(self) -> None:
        self.told = ""
        self._looks = 0
        self._until = time.monotonic() + _SECONDS

    def look(self) -> int:
        self._looks += 1
        if self._looks * _STEPS_PER_LOOK >= _STEPS:
            self.told = f"the query was stopped after {_STEPS:,} steps of the database; it needs to read less"
        elif time.monotonic() > self._until:
            self.told = f"the query was stopped after {_SECONDS:g} s"
        return bool(self.told)


def _guard(connection: sqlite3.Connection, clockless: sqlite3.Connection) -> _Watch:
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    watch = _Watch()
    for name in _OF_TIME:
        connection.create_function(name, -1, _without_clock(name, clockless, watch), deterministic=True)
    connection.set_progress_handler(watch.look, _STEPS_PER_LOOK)
    connection.set_authorizer(_authorize)
    return watch


def _without_clock(name: str, clockless: sqlite3.Connection, watch: _Watch) -> Callable[..., Value]:
    """Return SQLite's own time function, run on another connection, restricted to given times."""

    def run(*given: Value) -> Value:
        words = {value.lower() for value in given if isinstance(value, str)}
        if len(given) < 1 + (name == "strftime") or words & _NOT_PURE:
            watch.told = (
                f"{name} may not ask for the time or the place of the machine: give it a day that the rows hold"
            )
            raise ValueError(watch.told)
        found: Value = clockless.execute(f"SELECT {name}({', '.join('?' * len(given))})", given).fetchone()[0]
        return found

    return run


def _authorize(action: int, first: str | None, second: str | None, _: str | None, __: str | None) -> int:
    if action in _MAY or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _tell(problem: Exception) -> str:
    told = str(problem).encode(errors="replace").decode()
    if "not authorized" in told or "prohibited" in told:
        return f"{told}: only reading with SELECT is allowed, with the functions {', '.join(sorted(_FUNCTIONS))}"
    return cut(told, 500) or type(problem).__name__


def _plain(value: object) -> Value:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return value if value is None or isinstance(value, int | float | str) else str(value)
