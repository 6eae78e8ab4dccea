"""Context of the table of rollouts: rows, columns, headings, saved views, and limits of the search."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Sum
from django.http import QueryDict

from apps.accounts.models import SavedView, User
from apps.dashboard.tables.headings import Heading, order_of
from apps.dashboard.tables.rollouts.columns import (
    COLUMNS,
    DENSITIES,
    SCAN,
    TABLE,
    Column,
    chosen_columns,
    chosen_density,
    known_columns,
)
from apps.dashboard.tables.rollouts.listing import NEWEST, OLDEST, RolloutList
from apps.dashboard.tables.rollouts.row_texts import add_scan_answers, add_texts
from apps.rollouts.models import Collection, Rollout, RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import Filter, Term, Text, find_scans
from apps.rollouts.search.filters.filter_keys import KEYS
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time
from apps.rollouts.search.filters.text_search import MANY, count_unindexed
from apps.rollouts.search.keyset_pages import Page


@dataclass(frozen=True)
class View:
    """A saved view in the menu."""

    view: SavedView
    address: str
    is_own: bool


def show_table(
    given: QueryDict, rollouts: RolloutQuerySet, user: User, there: RolloutList, *, collection: Collection | None = None
) -> dict[str, Any]:
    """Return the context of the table templates. `collection` is the collection of the page, if any."""
    of = (Term("collection", (Text(str(collection.pk)),)),) if collection else ()
    shown = known_columns(given.get("columns", "").split(",")) or chosen_columns(user)
    shown = tuple(name for name in shown if not (collection and name == "collection"))
    scans = find_scans(there.parsed)
    shown = (*shown, SCAN.name) if scans else shown
    waiting = count_unindexed() if there.parsed.asks_for("text") else 0
    page: Page[Rollout] = Page(rows=[], after="", is_first=True)
    too_slow = ""
    try:
        with limit_query_time(there.parsed):
            page = there.page(rollouts)
    except FilterTooSlow as slow:
        too_slow = str(slow)
    add_texts(page.rows, shown)
    add_scan_answers(page.rows, scans)
    has_status = any(map(_has_status, page.rows))
    return {
        "there": there,
        "page": page,
        "too_slow": too_slow,
        "list_query": there.address(*of) if there.is_understood else "",
        "here_query": there.address(),
        "here_query_newest": there.address(sort=NEWEST),
        "here_query_oldest": there.address(sort=OLDEST),
        "of": collection.pk if collection else "",
        "export_query": _export(there, collection),
        "scan_query": urlencode({"filter": Filter((*of, *there.parsed.terms))}),
        "columns": COLUMNS,
        "shown": shown,
        "has_status": has_status,
        "headings": [
            _heading(there, column)
            for column in (*COLUMNS, SCAN)
            if column.name in shown and (has_status or column.name != "status")
        ],
        "density": chosen_density(user),
        "densities": DENSITIES,
        "views": list(_views(user)),
        "keys": KEYS.values(),
        "waiting": f"{MANY:,}+" if waiting > MANY else waiting,
        "total": _total(there, collection),
    }


def _has_status(row: Rollout) -> bool:
    """Return whether the cell Status says more than that the rollout completed with an answer."""
    return row.status != Rollout.Status.COMPLETED or row.stop_reason not in ("", "answered")


def _export(there: RolloutList, collection: Collection | None) -> str:
    """Return the URL of a new export of the matching rollouts, in the collection of the page or of the filter."""
    if not there.parsed.terms:
        return ""
    named = [term.values for term in there.parsed.terms if term.key == "collection" and not term.negated]
    of = collection.pk if collection else None
    match named:
        case [(Text(text),)] if of is None and text.isascii() and text.isdigit():
            of = int(text)
    return urlencode({"q": str(there.parsed), **({"collection": of} if of else {})})


def _heading(there: RolloutList, column: Column) -> Heading:
    if not column.sort:
        return Heading(column)
    # Descending first, then ascending.
    wanted = column.sort if there.sort == f"-{column.sort}" else f"-{column.sort}"
    return Heading(column, there.address(sort=wanted), order_of(column.sort, there.sort))


def _views(user: User) -> Any:
    for view in SavedView.objects.seen_by(user).filter(table=TABLE).select_related("user"):
        given = QueryDict(mutable=True)
        given["q"] = view.query
        if view.sort:
            given["sort"] = view.sort
        if view.columns:
            given["columns"] = ",".join(view.columns)
        yield View(view, given.urlencode(), view.user_id == user.pk)


def _total(there: RolloutList, collection: Collection | None) -> int | None:
    """Return the total from the counters of collections; None if it would have to be counted."""
    if there.parsed.terms or not there.is_understood:
        return None
    if collection is not None:
        return collection.total
    total = Collection.objects.present().aggregate(total=Sum("total"))["total"]
    return int(total or 0)
