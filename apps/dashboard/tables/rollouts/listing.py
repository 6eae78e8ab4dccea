"""What an address asks of the table of rollouts: a filter, an order, a place in it; and the page that this is."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import QueryDict

from apps.rollouts.models import Rollout, RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import Filter, FilterRefused, Term, Text, write_term
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.filtered_rollouts import apply_filter
from apps.rollouts.search.keyset_pages import PAGE_ROWS, Page, page_by_column, page_by_id
from apps.rollouts.search.rollout_order import SORTS, expect_values

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
}
"""Parameters of links that mean one term of a filter each."""
_FLAGS = {("usage", "missing"): "no_usage", ("flagged", "true"): "credentials"}
_CURSOR = ("id", "reward", "finished_at")


@dataclass(frozen=True)
class RolloutList:
    """`text` is the filter as it was written; with a `refusal` there are no rows."""

    text: str
    parsed: Filter
    sort: str
    after: str
    refusal: FilterRefused | None = None
    knows_sort: bool = True

    @classmethod
    def read(cls, given: QueryDict, *, sort: str = NEWEST) -> "RolloutList":
        """`sort` holds where the address names none."""
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
        """The text before the place that is not understood; `wrong` and `beyond` are the rest."""
        return self.text[: self.refusal.start] if self.refusal else self.text

    @property
    def wrong(self) -> str:
        return self.text[self.refusal.start : self.refusal.end] if self.refusal else ""

    @property
    def beyond(self) -> str:
        return self.text[self.refusal.end :] if self.refusal else ""

    @property
    def key(self) -> str:
        """What it is sorted by."""
        return self.sort.removeprefix("-")

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")

    def address(self, *also: Term, sort: str = "", parsed: Filter | None = None) -> str:
        """The query of an address that means this list; with further terms, another order or another filter."""
        terms = [*also, *(self.parsed if parsed is None else parsed).terms]
        return urlencode({"q": " ".join(map(write_term, terms)), "sort": sort or self.sort})

    def narrow(self, rollouts: RolloutQuerySet) -> RolloutQuerySet:
        return apply_filter(rollouts, self.parsed) if self.is_understood else rollouts.none()

    def page(self, rollouts: RolloutQuerySet) -> Page[Rollout]:
        if not self.is_understood:
            return Page(rows=[], after="", is_first=True)
        # First which rows, then what they show: what is sorted is narrow, and joined are the rows of one page alone.
        page = self.cut(self.narrow(rollouts.select_related(None).only(*_CURSOR)), self.after)
        found = rollouts.in_bulk([row.pk for row in page.rows])
        rows = [found[row.pk] for row in page.rows if row.pk in found]
        return Page(rows=rows, after=page.after, is_first=page.is_first)

    def cut(
        self, narrowed: RolloutQuerySet, after: str, *, has_value: bool | None = None, size: int = PAGE_ROWS
    ) -> Page[Rollout]:
        """The page after this cursor, of rows that were narrowed; `has_value` takes those with one, or without one."""
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
        """Of the page that begins after this rollout."""
        if self.key == "id":
            return str(rollout.pk)
        sort = SORTS[self.key]
        if getattr(rollout, sort.marker) is None:
            return f"~{rollout.pk}"
        value = Rollout.objects.filter(pk=rollout.pk).values_list(sort.values, flat=True).first()
        return f"{value!r}~{rollout.pk}"

    def has_value(self, rollout: Rollout) -> bool | None:
        """Whether it stands among those that have what is sorted by; None where there is no such difference."""
        return None if self.key == "id" else getattr(rollout, SORTS[self.key].marker) is not None

    def reversed(self) -> "RolloutList":
        order = self.key if self.descending else f"-{self.key}"
        return RolloutList(self.text, self.parsed, order, "", self.refusal, self.knows_sort)


def _terms_of(given: QueryDict) -> Iterator[str]:
    """Filters of links, as terms of the one grammar."""
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
