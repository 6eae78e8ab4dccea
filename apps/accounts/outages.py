"""Tell database errors that pass by themselves from queries that are wrong."""

from django.db import Error, InterfaceError, OperationalError, connection

RETRY_SECONDS = 5
_SQLSTATES = ("08", "53", "57P")
"""PostgreSQL's classes of connections, of resources that have run out, and of a server that stops or starts."""
_SQLITE = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")
_REPEATABLE_SQLSTATES = ("40001", "40P01", "55P03", "25P03")
"""PostgreSQL ended the transaction, not the server: serialization failure, deadlock, lock timeout, idle too long."""
_REPEATABLE_SQLITE = ("SQLITE_LOCKED", "SQLITE_PROTOCOL")


def is_outage(error: BaseException | None) -> bool:
    """Return True if the database is away, full or overrun, so that the same request may go through later.

    Django keeps the driver's own error as the cause.
    """
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    cause = error.__cause__
    if name := getattr(cause, "sqlite_errorname", None):
        return str(name).startswith(_SQLITE)
    if state := getattr(cause, "sqlstate", None):
        return str(state).startswith(_SQLSTATES)
    # No code: libpq itself speaks, of a connection that it could not make or has lost. Of an InterfaceError that is
    # closed, so may a cursor be, and that is a bug.
    return isinstance(error, OperationalError) or "connection" in str(error)


def is_transient(error: BaseException | None) -> bool:
    """Return True if a job that raised this may succeed when it is repeated: an outage, a deadlock, a lost race."""
    if is_outage(error):
        return True
    cause = error.__cause__ if isinstance(error, Error) else None
    return str(getattr(cause, "sqlstate", None)) in _REPEATABLE_SQLSTATES or str(
        getattr(cause, "sqlite_errorname", None)
    ).startswith(_REPEATABLE_SQLITE)


def drop_broken_connection() -> None:
    """Close this thread's connection if the server has ended it, so that the next query opens a new one."""
    if connection.connection is not None and not connection.is_usable():
        connection.close()
