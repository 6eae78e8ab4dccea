"""CSV files that are safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterable, Sequence

from django.http import HttpResponse
from django.utils.http import content_disposition_header

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def answer_csv(filename: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """Return a CSV response. None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_cell(name) for name in header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, filename) or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _cell(value: object) -> object:
    """Return the value of a cell. Text that a spreadsheet would take for a formula gets an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
