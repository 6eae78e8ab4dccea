"""Export tables as CSV or NDJSON in constant memory."""

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import orjson
from django.db.models import Max, QuerySet

from apps.gym.json_lines import escape_line_ends

Rows = TypeVar("Rows", bound=QuerySet[Any])
Write = Callable[[Rows], Iterator[bytes]]

CHUNK_ROWS = 500
# Spreadsheets would evaluate such a cell as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table_formats(
    columns: Sequence[str], read: Callable[[Rows], Iterator[dict[str, Any]]]
) -> dict[str, tuple[str, Write[Rows]]]:
    """Return the content type and writer of each format. `read` yields the rows of the table."""

    def write_ndjson(rows: Rows) -> Iterator[bytes]:
        for chunk in _chunks(read(rows)):
            yield escape_line_ends(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in chunk))

    def write_csv(rows: Rows) -> Iterator[bytes]:
        yield _encode([columns])
        for chunk in _chunks(read(rows)):
            yield _encode([[_cell(row[name]) for name in columns] for row in chunk])

    return {"csv": ("text/csv; charset=utf-8", write_csv), "ndjson": ("application/x-ndjson", write_ndjson)}


def tag_table(rows: Rows, *, format: str, **figures: Any) -> tuple[str, Rows]:
    """Return an ETag, and the rows of the file. Rows added later are excluded.

    `figures` are aggregates that change when rows change or are deleted.
    """
    found = rows.order_by().aggregate(last=Max("pk"), **figures)
    sql, parameters = rows.order_by().query.sql_with_params()
    state = orjson.dumps([format, sql, [str(one) for one in parameters], *found.values()])
    return f'"{hashlib.sha256(state).hexdigest()}"', rows.filter(pk__lte=found["last"] or 0)


def _chunks(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield chunk


def _cell(value: Any) -> str:
    """Return the text of a cell; lists and objects are JSON."""
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode() if value else ""
    text = "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _encode(rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()
