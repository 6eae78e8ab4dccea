"""The audit log as a file: CSV for spreadsheets, NDJSON for programs, in flat memory."""

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
# A spreadsheet would take such a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_row(entry: AuditEntry) -> dict[str, Any]:
    """What the page, the API and the files say of an entry."""
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
    """One JSON object a line, the oldest first."""
    async for rows in _chunks(entries):
        yield b"".join(orjson.dumps(as_row(row), option=orjson.OPT_APPEND_NEWLINE) for row in rows)


async def read_csv(entries: AuditEntryQuerySet) -> AsyncIterator[bytes]:
    """With a header, the oldest first; objects are JSON in their cell."""
    yield _write([COLUMNS])
    async for rows in _chunks(entries):
        yield _write([[_cell(value) for value in as_row(row).values()] for row in rows])


FORMATS: dict[str, tuple[str, Callable[[AuditEntryQuerySet], AsyncIterator[bytes]]]] = {
    "csv": ("text/csv; charset=utf-8", read_csv),
    "ndjson": ("application/x-ndjson", read_ndjson),
}


def tag_entries(entries: AuditEntryQuerySet, *, format: str) -> tuple[str, AuditEntryQuerySet]:
    """An ETag of the file, and the entries that are in it: those that come while it is read are in the next one."""
    # Entries never change; but one loses its person or key when these are deleted, and old ones are swept.
    found = entries.order_by().aggregate(
        first=Min("pk"), last=Max("pk"), entries=Count("pk"), people=Count("user"), keys=Count("api_key")
    )
    sql, parameters = entries.order_by().query.sql_with_params()
    state = orjson.dumps([format, sql, [str(one) for one in parameters], *found.values()])
    return f'"{hashlib.sha256(state).hexdigest()}"', entries.filter(pk__lte=found["last"] or 0)


async def _chunks(entries: AuditEntryQuerySet) -> AsyncIterator[list[AuditEntry]]:
    """A chunk is a query, so that nothing stays open for a slow reader."""
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
