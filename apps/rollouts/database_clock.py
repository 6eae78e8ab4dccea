"""The database server's clock, which all workers share. Leases by this clock need no synchronized machines."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import DateTimeField
from django.db.models.expressions import RawSQL
from django.utils import timezone


def server_now(after: timedelta = timedelta(0)) -> Any:
    """Return the time `after` from now, to store or compare.

    On PostgreSQL this is an expression, evaluated when the row is reached and not when the statement was sent, because
    it may wait for a lock. SQLite runs on one machine with one clock; call it inside the transaction, after any wait.
    """
    if connection.vendor == "postgresql":
        return RawSQL("clock_timestamp() + %s", [after], output_field=DateTimeField())
    return timezone.now() + after


def server_now_sql() -> tuple[str, list[Any]]:
    """Return the same time as SQL with its parameters, for handwritten statements."""
    if connection.vendor == "postgresql":
        return "clock_timestamp()", []
    return "%s", [connection.ops.adapt_datetimefield_value(timezone.now())]


def as_utc(read: datetime) -> datetime:
    """Return a time that a handwritten statement read. SQLite returns naive times, which are in UTC."""
    return read if read.tzinfo else read.replace(tzinfo=UTC)
