"""The audit log as a file, CSV or NDJSON, in constant memory."""

import csv
import hashlib
import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from django.db.models import Count, Max, Min

from apps.accounts.models import AuditEntry, AuditEntryQuerySet

CHUNK_ROWS = 500
COLUMNS = ["id", "at", "user", "key", "origin", "address", "action", "target", "before", "after", "detail"]
# Spreadsheets would evaluate such a cell as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_row(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as shown on the page, in the API and in files."""
    return {
        "id": entry.pk,
        "at": entry.at.isoformat().replace("+00:00", "Z"),
        "user": entry.user.username if entry.user else None,
        "key": entry.api_key.prefix if entry.api_key else None,
        "origin": entry.origin,
        "address": entry.address,
        "action": entry.action,
        "target": entry.target,
        "before": entry.before,
        "after": entry.after,
        "detail": entry.detail,
    }


async def read_ndjson(entries: AuditEntryQuerySet) -> AsyncIterator[bytes]:
    """Yield one JSON object per line, oldest first."""
    async for rows in _chunks(entries):
        yield b"".join(orjson.dumps(as_row(row), option=orjson.OPT_APPEND_NEWLINE) for row in rows)


async def read_csv(entries: AuditEntryQuerySet) -> AsyncIterator[bytes]:
    """Yield CSV with a header, oldest first; objects are JSON in their cell."""
    yield _write([COLUMNS])
    async for rows in _chunks(entries):
        yield _write([[_cell(value) for value in as_row(row).values()] for row in rows])


FORMATS: dict[str, tuple[str, Callable[[AuditEntryQuerySet], AsyncIterator[bytes]]]] = {
    "csv": ("text/csv; charset=utf-8", read_csv),
    "ndjson": ("application/x-ndjson", read_ndjson),
}


def tag_entries(entries: AuditEntryQuerySet, *, format: str) -> tuple[str, AuditEntryQuerySet]:
    """Return an ETag of the file, and its entries. Entries added while it is read are in the next file."""
    # Entries never change, but they lose their user or key when these are deleted, and old ones are deleted.
    found = entries.order_by().aggregate(
        first=Min("pk"), last=Max("pk"), entries=Count("pk"), people=Count("user"), keys=Count("api_key")
    )
    sql, parameters = entries.order_by().query.sql_with_params()
    state = orjson.dumps([format, sql, [str(one) for one in parameters], *found.values()])
    return f'"{hashlib.sha256(state).hexdigest()}"', entries.filter(pk__lte=found["last"] or 0)


async def _chunks(entries: AuditEntryQuerySet) -> AsyncIterator[list[AuditEntry]]:
    """Yield entries with one query per chunk, so that no cursor stays open for a slow reader."""
    last = 0
    ordered = entries.with_actors().order_by("pk")
    while rows := [row async for row in ordered.filter(pk__gt=last)[:CHUNK_ROWS]]:
        last = rows[-1].pk
        yield rows


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return orjson.dumps(value).decode() if value else ""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _write(rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()
