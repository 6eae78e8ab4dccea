"""Keyset pagination and sort orders of rollouts, for pages and API.

A page continues after the last row of the previous one, so every page takes the same time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from django.db.models import F, Model, Q, QuerySet

from apps.rollouts.models import ALL_TOKENS, Rollout
from apps.rollouts.search.filters.filter_grammar import Term, Text

Row = TypeVar("Row", bound=Model)
PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    rows: list[Row]
    after: str  # cursor of the next page; empty on the last page
    is_first: bool


def read_rows(page: Page[Row], rows: QuerySet[Row]) -> Page[Row]:
    """Return a page with all fields of its rows. Sorting narrow rows, and reading one page afterwards, is fast."""
    found = rows.in_bulk([row.pk for row in page.rows])
    return replace(page, rows=[found[row.pk] for row in page.rows if row.pk in found])


def page_by_id(rows: QuerySet[Row], after: str, *, descending: bool = True, size: int = PAGE_ROWS) -> Page[Row]:
    """Return a page ordered by id. With an invalid cursor, return the first page."""
    last = _number(after)
    if last is not None:
        rows = rows.filter(pk__lt=last) if descending else rows.filter(pk__gt=last)
    found = list(rows.order_by("-pk" if descending else "pk")[: size + 1])
    return _cut(found, size, last is None, lambda row: str(row.pk))


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
    """Return a page ordered by a number column, with null values last and ties by id. Cursor: `value~id`.

    A row has no value if the column `marker` (by default `column`) is null. `with_values=False` means that no row has a
    value, `without_values=False` that every row has one.
    """
    value_text, _, id_text = after.partition("~")
    last, value = _number(id_text), _float(value_text)
    side, sign = ("lt", "-") if descending else ("gt", "")
    beyond = Q() if last is None else Q(**{f"pk__{side}": last})
    marker = marker or column
    valued = rows.filter(**{f"{marker}__isnull": False}).order_by(f"{sign}{column}", f"{sign}pk")
    parts: list[QuerySet[Row]] = []
    # Each part is one index range. A single condition with OR would scan all previous rows.
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


_ENDED = {Rollout.Status.COMPLETED, Rollout.Status.FAILED, Rollout.Status.CANCELLED}


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort order. `values` are compared; rows without a value have a null `marker` and come last."""

    values: Any
    marker: str = "finished_at"


SORTS: dict[str, Sort] = {
    "reward": Sort(F("reward"), "reward"),
    "steps": Sort(F("turns")),
    "calls": Sort(F("tool_calls")),
    "tokens": Sort(ALL_TOKENS),
    "seconds": Sort(F("duration")),
    "cost": Sort(F("cost")),
}
"""Sort orders besides `id`, by filter key. Each has an index in Rollout.Meta."""


def expect_values(sort: Sort, terms: Iterable[Term]) -> tuple[bool, bool]:
    """Return whether a filter can match rows with a value, and rows without one.

    Searching for rows that cannot exist would scan the table.
    """
    some, none = True, True
    for term in terms:
        if term.negated:
            continue
        statuses = {value.text for value in term.values if isinstance(value, Text)}
        if term.key == "reward":
            none = False
        elif term.key == "error":
            some = some and sort.marker != "reward"
        elif term.key == "status" and sort.marker == "reward":
            some = some and Rollout.Status.COMPLETED in statuses
        elif term.key == "status":
            some = some and bool(statuses & _ENDED)
            none = none and not statuses <= _ENDED
    return some, none
