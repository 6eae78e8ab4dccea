"""Run several queries on a consistent snapshot of the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

_POSTGRES = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@contextmanager
def consistent_reads() -> Iterator[None]:
    """Give all queries in the block the same snapshot. Use it for reads only.

    Inside another transaction, its isolation applies. PostgreSQL gets 64 MB of work memory; with the default of 4 MB,
    it would group a million rows on disk.
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
    """Prevent SQLite from taking the write lock, which transactions in this project otherwise take at their start."""
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
