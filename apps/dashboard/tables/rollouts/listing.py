"""Parse the URL of the table of rollouts (filter, order, position) and read its page."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import Prefetch
from django.http import QueryDict

from apps.rollouts.models import Collection, Rollout, RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import Filter, FilterRefused, Term, Text, write_term
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.filter_sql import apply_filter
from apps.rollouts.search.keyset_pages import (
    PAGE_ROWS,
    SORTS,
    Page,
    expect_values,
    page_by_column,
    page_by_id,
    read_rows,
)

NEWEST = "-id"
OLDEST = "id"
_PLAIN = {
    "status": "status",
    "stop_reason": "stop",
    "error_kind": "error",
    "collection": "collection",
    "dataset": "dataset",
    "policy_model": "model",
    "version": "version",
    "worker": "worker",
    "scan": "scan",
}
"""URL parameters that stand for one filter term each."""
_FLAGS = {("usage", "missing"): "no_usage", ("flagged", "true"): "credentials"}
_CURSOR = ("id", "reward", "finished_at")


@dataclass(frozen=True)
class RolloutList:
    """`text` is the filter as entered; with a `refusal` there are no rows."""

    text: str
    parsed: Filter
    sort: str
    after: str
    refusal: FilterRefused | None = None
    knows_sort: bool = True

    @classmethod
    def read(cls, given: QueryDict, *, sort: str = NEWEST) -> "RolloutList":
        """Parse a query string. `sort` is the default order."""
        text = " ".join(part for part in (given.get("q", "").strip(), *_terms_of(given)) if part)
        order = given.get("sort", "") or sort
        parsed, refusal = Filter(), None
        try:
            parsed = parse_filter(text)
        except FilterRefused as refused:
            refusal = refused
        knows = order.removeprefix("-") in {"id", *SORTS}
        return cls(text, parsed, order if knows else sort, given.get("after", "")[:64], refusal, knows)

    @property
    def is_understood(self) -> bool:
        return self.refusal is None and self.knows_sort

    @property
    def before(self) -> str:
        """Return the text before the error; `wrong` and `beyond` are the rest."""
        return self.text[: self.refusal.start] if self.refusal else self.text

    @property
    def wrong(self) -> str:
        return self.text[self.refusal.start : self.refusal.end] if self.refusal else ""

    @property
    def beyond(self) -> str:
        return self.text[self.refusal.end :] if self.refusal else ""

    @property
    def key(self) -> str:
        """Return the sort key."""
        return self.sort.removeprefix("-")

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")

    def address(self, *also: Term, sort: str = "", parsed: Filter | None = None) -> str:
        """Return the query string of this list, optionally with another filter or order."""
        terms = [*also, *(self.parsed if parsed is None else parsed).terms]
        return urlencode({"q": " ".join(map(write_term, terms)), "sort": sort or self.sort})

    def narrow(self, rollouts: RolloutQuerySet) -> RolloutQuerySet:
        return apply_filter(rollouts, self.parsed) if self.is_understood else rollouts.none()

    def page(self, rollouts: RolloutQuerySet) -> Page[Rollout]:
        if not self.is_understood:
            return Page(rows=[], after="", is_first=True)
        return read_rows(self.cut(self.narrow(rollouts.only(*_CURSOR)), self.after), _shown_rollouts())

    def cut(
        self, narrowed: RolloutQuerySet, after: str, *, has_value: bool | None = None, size: int = PAGE_ROWS
    ) -> Page[Rollout]:
        """Return the page after this cursor, from narrowed rows.

        `has_value` restricts it to rows with or without a value.
        """
        if self.key == "id":
            return page_by_id(narrowed, after, descending=self.descending, size=size)
        sort = SORTS[self.key]
        with_values, without_values = expect_values(sort, self.parsed.terms)
        return page_by_column(
            narrowed.annotate(sorted_by=sort.values),
            "sorted_by",
            after,
            marker=sort.marker,
            descending=self.descending,
            with_values=with_values and has_value is not False,
            without_values=without_values and has_value is not True,
            size=size,
        )

    def cursor(self, rollout: Rollout) -> str:
        """Return the cursor of the page that starts after this rollout."""
        if self.key == "id":
            return str(rollout.pk)
        sort = SORTS[self.key]
        if getattr(rollout, sort.marker) is None:
            return f"~{rollout.pk}"
        value = Rollout.objects.filter(pk=rollout.pk).values_list(sort.values, flat=True).first()
        return f"{value!r}~{rollout.pk}"

    def has_value(self, rollout: Rollout) -> bool | None:
        """Return whether the row has a value in the sort column; None if all rows do."""
        return None if self.key == "id" else getattr(rollout, SORTS[self.key].marker) is not None

    def reversed(self) -> "RolloutList":
        order = self.key if self.descending else f"-{self.key}"
        return RolloutList(self.text, self.parsed, order, "", self.refusal, self.knows_sort)


def _shown_rollouts() -> RolloutQuerySet:
    """Return rollouts with all related rows that the table shows, without their long fields."""
    collections = Collection.objects.select_related("policy_model", "agent").defer("snapshot", "prompt_template")
    # Rollouts of a page share few collections. A join would read and parse the collection once for each rollout.
    shared = Prefetch("collection", collections)
    return Rollout.objects.select_related("task").prefetch_related(shared).defer("task__row_json")


def _terms_of(given: QueryDict) -> Iterator[str]:
    """Yield the filters of URL parameters as filter terms."""
    for parameter, key in _PLAIN.items():
        if value := given.get(parameter, "").strip():
            yield write_term(Term(key, (Text(value),)))
    low, high = given.get("min_reward", ""), given.get("max_reward", "")
    if low and high:
        yield f"reward:{low}..{high}"
    elif low or high:
        yield f"reward:{'>=' if low else '<='}{low or high}"
    for (parameter, value), flag in _FLAGS.items():
        if given.get(parameter) == value:
            yield f"flag:{flag}"
