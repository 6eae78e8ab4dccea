"""Keyset paging: a page is found by the last row of the one before, so the millionth row is as near as the first."""

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import F, Model, Q, QuerySet

Row = TypeVar("Row", bound=Model)
PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    rows: list[Row]
    after: str  # the cursor of the next page; empty on the last one
    is_first: bool


def page_by_id(rows: QuerySet[Row], after: str, *, descending: bool = True, size: int = PAGE_ROWS) -> Page[Row]:
    """Pages in the order of ids. A cursor that is none starts at the first page."""
    last = _number(after)
    if last is not None:
        rows = rows.filter(pk__lt=last) if descending else rows.filter(pk__gt=last)
    return _page(rows.order_by("-pk" if descending else "pk"), size, last is None, lambda row: str(row.pk))


def page_by_column(
    rows: QuerySet[Row], column: str, after: str, *, descending: bool, size: int = PAGE_ROWS
) -> Page[Row]:
    """Pages in the order of a float column, rows without a value last; ids break ties. Cursor: `value~id`."""
    value_text, _, id_text = after.partition("~")
    last, value = _number(id_text), _float(value_text)
    if last is not None:
        rows = rows.filter(_beyond(column, value, last, descending=descending))
    order = F(column).desc(nulls_last=True) if descending else F(column).asc(nulls_last=True)
    ordered = rows.order_by(order, "-pk" if descending else "pk")
    return _page(ordered, size, last is None, lambda row: _cursor(getattr(row, column), row.pk))


def _beyond(column: str, value: float | None, last: int, *, descending: bool) -> Q:
    side = "lt" if descending else "gt"
    tie = Q(**{f"pk__{side}": last})
    if value is None:
        return Q(**{f"{column}__isnull": True}) & tie
    return Q(**{f"{column}__{side}": value}) | (Q(**{column: value}) & tie) | Q(**{f"{column}__isnull": True})


def _page(rows: QuerySet[Row], size: int, is_first: bool, cursor: Any) -> Page[Row]:
    found = list(rows[: size + 1])
    after = cursor(found[size - 1]) if len(found) > size else ""
    return Page(rows=found[:size], after=after, is_first=is_first)


def _cursor(value: float | None, pk: int) -> str:
    return f"{'' if value is None else repr(value)}~{pk}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
