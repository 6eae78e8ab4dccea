"""Tell a database that is away, full or overrun from a query that is wrong: only the former passes by itself."""

from django.db import InterfaceError, OperationalError

RETRY_SECONDS = 5
_SQLSTATES = ("08", "53", "57P")
"""PostgreSQL's classes of connections, of resources that have run out, and of a server that stops or starts."""
_SQLITE = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")


def is_outage(error: BaseException | None) -> bool:
    """Whether the same request may well go through later. Django keeps the driver's own error as the cause."""
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
