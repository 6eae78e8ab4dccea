"""Distinguish transient database errors from faulty queries, and release connections of web requests."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import Error, InterfaceError, OperationalError, close_old_connections, connection

Args = ParamSpec("Args")
Result = TypeVar("Result")

RETRY_SECONDS = 5
_SQLSTATES = ("08", "53", "57P")
"""PostgreSQL error classes for connection failures, exhausted resources, and shutdown or startup."""
_SQLITE = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")
_REPEATABLE_SQLSTATES = ("40001", "40P01", "55P03", "25P03")
"""PostgreSQL aborted only the transaction: serialization failure, deadlock, lock timeout, idle timeout."""
_REPEATABLE_SQLITE = ("SQLITE_LOCKED", "SQLITE_PROTOCOL")


class TooManyRequests(OperationalError):
    """Raised if a request waited too long for one of its web process's database connections."""


def is_outage(error: BaseException | None) -> bool:
    """Return True if the database is unavailable, full or overloaded, so that a retry may succeed.

    Django keeps the driver's error as the cause.
    """
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    cause = error.__cause__
    if name := getattr(cause, "sqlite_errorname", None):
        return str(name).startswith(_SQLITE)
    if state := getattr(cause, "sqlstate", None):
        return str(state).startswith(_SQLSTATES)
    # Errors without a code are from libpq: the connection failed. An InterfaceError may also mean a closed cursor, a
    # bug.
    return isinstance(error, OperationalError) or "connection" in str(error)


def is_transient(error: BaseException | None) -> bool:
    """Return True if the job may succeed when retried: after an outage, a deadlock or a lost race."""
    if is_outage(error):
        return True
    cause = error.__cause__ if isinstance(error, Error) else None
    return str(getattr(cause, "sqlstate", None)) in _REPEATABLE_SQLSTATES or str(
        getattr(cause, "sqlite_errorname", None)
    ).startswith(_REPEATABLE_SQLITE)


def drop_broken_connection() -> None:
    """Close this thread's connection if the server has ended it. The next query opens a new one."""
    if connection.connection is not None and not connection.is_usable():
        connection.close()


def release_connection() -> None:
    """Release the connection of this request. The next query waits for one again.

    Do nothing within a transaction, and outside of web processes with PostgreSQL.
    """
    if getattr(connection, "is_pooled", False):
        close_old_connections()


async def run_query(work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """Run `work` on the thread of the request, and release its connection afterwards."""
    return await sync_to_async(_run)(work, *args, **kwargs)


def _run(work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    try:
        return work(*args, **kwargs)
    finally:
        release_connection()
