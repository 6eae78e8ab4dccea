"""A second connection to the test database that commits before each write of the code under test.

SQLite then refuses a write on a connection that still reads: its snapshot is out of date (SQLITE_BUSY_SNAPSHOT).
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connection

READS = ("SELECT", "SAVEPOINT", "RELEASE", "ROLLBACK", "PRAGMA", "EXPLAIN")


@contextlib.contextmanager
def commits_before_each_write() -> Iterator[list[str]]:
    """Yield the list of writes that the other connection preceded. Needs a test database with real transactions."""
    other = connection.copy()
    preceded: list[str] = []

    def commit_first(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not connection.in_atomic_block and not sql.lstrip().upper().startswith(READS):
            with other.cursor() as cursor:
                # A new value each time: SQLite commits nothing where a row stays equal.
                cursor.execute("UPDATE agents_agent SET name = %s", [f"written {len(preceded)} times"])
            preceded.append(sql)
        return execute(sql, params, many, context)

    try:
        with connection.execute_wrapper(commit_first):
            yield preceded
    finally:
        other.close()
