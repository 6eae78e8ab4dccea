"""Export the audit log as CSV or NDJSON, oldest first, in constant memory."""

from collections.abc import Iterator
from typing import Any

from django.db.models import Count, Min

from apps.accounts.keyset_reading import read_by_key
from apps.accounts.models import AuditEntry, AuditEntryQuerySet
from apps.accounts.table_files import CHUNK_ROWS, table_formats, tag_table

COLUMNS = [
    "id",
    "at",
    "user",
    "key",
    "origin",
    "address",
    "request_id",
    "action",
    "target",
    "before",
    "after",
    "detail",
]


def as_row(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as shown on pages, in the API and in files."""
    derived = {
        "at": entry.at.isoformat().replace("+00:00", "Z"),
        "user": entry.user.username if entry.user else None,
        "key": entry.api_key.prefix if entry.api_key else None,
    }
    return {name: derived[name] if name in derived else getattr(entry, name) for name in COLUMNS}


def read_entries(entries: AuditEntryQuerySet) -> Iterator[dict[str, Any]]:
    yield from map(as_row, read_by_key(entries.with_actors(), size=CHUNK_ROWS))


FORMATS = table_formats(COLUMNS, read_entries)


def tag_entries(entries: AuditEntryQuerySet, *, format: str) -> tuple[str, AuditEntryQuerySet]:
    """Return an ETag, and the entries of the file. Entries added later are excluded."""
    # Entries never change, but lose their user or key when it is deleted, and old ones are deleted.
    figures = {"first": Min("pk"), "entries": Count("pk"), "people": Count("user"), "keys": Count("api_key")}
    return tag_table(entries, format=format, **figures)
