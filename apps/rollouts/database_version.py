"""Notice that SQLite has not changed, to leave out queries that would return the same rows."""

from django.db import connection


def read_version() -> object:
    """Return a value that is equal only if the database has not changed in between, or None for PostgreSQL.

    Compare only values that the same thread has read outside transactions.
    """
    if connection.vendor != "sqlite":
        return None
    with connection.cursor() as cursor:
        # `data_version` counts changes by other connections, `total_changes` those by this one.
        (others,) = cursor.execute("PRAGMA data_version").fetchone()
    return connection.connection, others, connection.connection.total_changes
