"""Keyset paging: a page is found by the last row of the one before, so the millionth row is as near as the first."""

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model, Q, QuerySet

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
    rows: QuerySet[Row],
    column: str,
    after: str,
    *,
    marker: str = "",
    descending: bool,
    with_values: bool = True,
    without_values: bool = True,
    size: int = PAGE_ROWS,
) -> Page[Row]:
    """Pages in the order of a column of numbers, rows without a value last; ids break ties. Cursor: `value~id`.

    A row has no value where the column `marker` is null, which is the same column unless another is named.
    `with_values=False` says that none of the rows has a value, `without_values=False` that all of them have one.
    """
    value_text, _, id_text = after.partition("~")
    last, value = _number(id_text), _float(value_text)
    side, sign = ("lt", "-") if descending else ("gt", "")
    beyond = Q() if last is None else Q(**{f"pk__{side}": last})
    marker = marker or column
    valued = rows.filter(**{f"{marker}__isnull": False}).order_by(f"{sign}{column}", f"{sign}pk")
    parts: list[QuerySet[Row]] = []
    # Each part is one range of an index; said in one condition with OR, it would be a walk over all that came before.
    if last is None:
        parts += [valued]
    elif value is not None:
        parts += [valued.filter(beyond, **{column: value}), valued.filter(**{f"{column}__{side}": value})]
    if not with_values:
        parts = []
    if without_values:
        valueless = rows.filter(**{f"{marker}__isnull": True}).order_by(f"{sign}pk")
        parts.append(valueless if value is not None else valueless.filter(beyond))
    found: list[Row] = []
    for part in parts:
        if len(found) <= size:
            found += part[: size + 1 - len(found)]
    return _cut(found, size, last is None, lambda row: _cursor(row, column, marker))


def _page(rows: QuerySet[Row], size: int, is_first: bool, cursor: Any) -> Page[Row]:
    return _cut(list(rows[: size + 1]), size, is_first, cursor)


def _cut(found: list[Row], size: int, is_first: bool, cursor: Any) -> Page[Row]:
    after = cursor(found[size - 1]) if len(found) > size else ""
    return Page(rows=found[:size], after=after, is_first=is_first)


def _cursor(row: Model, column: str, marker: str) -> str:
    has_value = getattr(row, marker) is not None
    return f"{getattr(row, column)!r}~{row.pk}" if has_value else f"~{row.pk}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
