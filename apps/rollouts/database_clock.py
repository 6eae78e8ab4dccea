"""One clock for all workers, the database server's: leases that are kept by it need no clocks that agree."""

from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import DateTimeField
from django.db.models.expressions import RawSQL
from django.utils import timezone


def server_now(after: timedelta = timedelta(0)) -> Any:
    """The moment so long from now, to be stored or compared with.

    On PostgreSQL an expression, evaluated when the row is reached and not when the statement was sent: it may have
    waited for a lock. On SQLite there is one machine with one clock; call it inside the transaction, which waits first.
    """
    if connection.vendor == "postgresql":
        return RawSQL("clock_timestamp() + %s", [after], output_field=DateTimeField())
    return timezone.now() + after


def server_now_sql() -> tuple[str, list[Any]]:
    """The same moment for a statement that is written by hand: its SQL, and the parameters of that."""
    if connection.vendor == "postgresql":
        return "clock_timestamp()", []
    return "%s", [connection.ops.adapt_datetimefield_value(timezone.now())]
