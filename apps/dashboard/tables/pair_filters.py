"""Filters and sort orders of the pairs of a set. They stay in the URL while a user goes from pair to pair."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args
from urllib.parse import urlencode

from django.db.models import Case, Count, F, FloatField, Q, QuerySet, When
from django.db.models.functions import Cast, Greatest, Least

from apps.pairs.models import PreferencePair
from apps.pairs.pair_search import FLAGS, Flag, flag_pairs
from apps.rollouts.search.keyset_pages import Page, page_by_column, page_by_id

FLAG_WORDS: dict[Flag, str] = {
    "long": "one side over twice as long",
    "against_reward": "chosen has the lower reward",
    "same_answer": "same answer",
}
SORT_WORDS = {"margin": "smallest margin first", "length": "largest length ratio first"}
_COLUMNS = {"margin": "margin", "length": "length_share"}
_LENGTH_SHARE = Case(
    When(
        chosen_length__gt=0,
        rejected_length__gt=0,
        then=Cast(Least("chosen_length", "rejected_length"), FloatField())
        / Cast(Greatest("chosen_length", "rejected_length"), FloatField()),
    ),
    output_field=FloatField(),
)
"""Length of the shorter side divided by that of the longer one; null if a side has no text."""
_VALUES: dict[str, list[str]] = {
    "status": PreferencePair.Status.values,
    "source": PreferencePair.Source.values,
    "flag": list(FLAGS),
    "sort": list(SORT_WORDS),
}


@dataclass(frozen=True, slots=True)
class PairPlace:
    """The place of a pair among all that match the filters. `total` includes it even if it does not match."""

    number: int
    total: int
    proposed: int
    previous: int | None
    next: int | None
    next_proposed: int | None


def read_pair_filters(query: Mapping[str, str]) -> dict[str, str]:
    """Return the valid filters and the sort order in the query of a URL."""
    return {name: query[name] for name, values in _VALUES.items() if query.get(name) in values}


def pair_query(shown: Mapping[str, str]) -> str:
    """Return the filters as the query of a URL, with its question mark; empty without filters."""
    return f"?{urlencode(shown)}" if shown else ""


def filter_pairs(pairs: QuerySet[PreferencePair], shown: Mapping[str, str]) -> QuerySet[PreferencePair]:
    exact = {name: value for name, value in shown.items() if name not in {"flag", "sort"}}
    flag = next((flag for flag in get_args(Flag) if flag == shown.get("flag")), None)
    pairs = pairs.annotate(length_share=_LENGTH_SHARE).filter(**exact)
    return flag_pairs(pairs, flag) if flag else pairs


def page_pairs(pairs: QuerySet[PreferencePair], shown: Mapping[str, str], after: str) -> Page[PreferencePair]:
    """Return a page of the pairs that match the filters, in their sort order."""
    matching, column = filter_pairs(pairs, shown), _COLUMNS.get(shown.get("sort", ""))
    if column is None:
        return page_by_id(matching, after, descending=False)
    return page_by_column(matching, column, after, descending=False)


def find_place(pair: PreferencePair, shown: Mapping[str, str]) -> PairPlace:
    matching = filter_pairs(PreferencePair.objects.filter(pair_set=pair.pair_set_id), shown)
    before, after = _neighbours(pair, shown)
    counts = matching.aggregate(
        before=Count("pk", filter=before),
        after=Count("pk", filter=after),
        proposed=Count("pk", filter=Q(status=PreferencePair.Status.PROPOSED)),
    )
    return PairPlace(
        number=counts["before"] + 1,
        total=counts["before"] + 1 + counts["after"],
        proposed=counts["proposed"],
        previous=_sorted_ids(matching.filter(before), shown).last(),
        next=_sorted_ids(matching.filter(after), shown).first(),
        next_proposed=next_proposed(pair, shown),
    )


def next_proposed(pair: PreferencePair, shown: Mapping[str, str]) -> int | None:
    """Return the next proposed pair of the set that matches the filters. The filter by status is ignored."""
    wanted = {**shown, "status": PreferencePair.Status.PROPOSED.value}
    matching = filter_pairs(PreferencePair.objects.filter(pair_set=pair.pair_set_id), wanted)
    return _sorted_ids(matching.filter(_neighbours(pair, shown)[1]), shown).first()


def _sorted_ids(pairs: QuerySet[PreferencePair], shown: Mapping[str, str]) -> QuerySet[PreferencePair, int]:
    column = _COLUMNS.get(shown.get("sort", ""))
    order = [F(column).asc(nulls_last=True)] if column else []
    return pairs.order_by(*order, "pk").values_list("pk", flat=True)


def _neighbours(pair: PreferencePair, shown: Mapping[str, str]) -> tuple[Q, Q]:
    """Return the conditions of the pairs before and after this one. Pairs without a value to sort by are last."""
    before, after = Q(pk__lt=pair.pk), Q(pk__gt=pair.pk)
    column = _COLUMNS.get(shown.get("sort", ""))
    if column is None:
        return before, after
    value = filter_pairs(PreferencePair.objects.filter(pk=pair.pk), {}).values_list(column, flat=True).get()
    empty = Q(**{f"{column}__isnull": True})
    if value is None:
        return ~empty | before, empty & after
    lower, equal, higher = (Q(**{f"{column}{lookup}": value}) for lookup in ("__lt", "", "__gt"))
    return lower | (equal & before), higher | (equal & after) | empty
