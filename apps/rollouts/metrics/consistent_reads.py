"""Run several queries on one state of the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

_POSTGRES = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@contextmanager
def consistent_reads() -> Iterator[None]:
    """Let all queries in the block see the same rows, despite concurrent writes. Use it for reads only.

    Inside another transaction, the block sees what that transaction sees. PostgreSQL gets 64 MB of work memory to group
    a million rows; with its default of 4 MB it would sort them on disk.
    """
    if connection.in_atomic_block:
        yield
        return
    with _deferred(), transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(_POSTGRES)
                cursor.execute("SET LOCAL work_mem = '64MB'")
        yield


@contextmanager
def _deferred() -> Iterator[None]:
    """Keep SQLite from taking the write lock, which transactions of this project otherwise take at their start."""
    database: Any = connection
    mode = getattr(database, "transaction_mode", None)
    if mode is None:
        yield
        return
    database.transaction_mode = "DEFERRED"
    try:
        yield
    finally:
        database.transaction_mode = mode
