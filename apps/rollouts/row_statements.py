"""Statements with many rows of values, in few sizes: SQLite's driver keeps them prepared."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from django.db import connection

Row = Sequence[Any]

SIZES = (256, 64, 16, 4, 1)
"""Rows per statement, largest first."""


def execute_with_rows(statement: str, rows: Sequence[Row], *after: Any) -> list[tuple[Any, ...]]:
    """Run a statement with the rows in place of `{rows}`, and return the rows that it returns.

    `after` are the parameters that follow the rows in the statement.
    """
    found: list[tuple[Any, ...]] = []
    for part in _parts(rows):
        found += _execute(_text(statement, len(part), len(part[0]), connection.vendor), [*chain(*part), *after])
    return found


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start = 0
    for size in SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


@cache
def _text(statement: str, rows: int, columns: int, vendor: str) -> str:
    text = statement.format(rows=", ".join([f"({', '.join(['%s'] * columns)})"] * rows))
    return text.replace("%s", "?") if vendor == "sqlite" else text


def _execute(text: str, values: list[Any]) -> list[tuple[Any, ...]]:
    if connection.vendor == "sqlite":
        # Django's cursor would rewrite the text each time, which takes almost as long as running it.
        connection.ensure_connection()
        with connection.wrap_database_errors:
            return list(connection.connection.execute(text, values).fetchall())
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return list(cursor.fetchall()) if cursor.description else []
