"""Filters of the pairs of a set. They stay in the URL while a user goes from pair to pair."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args
from urllib.parse import urlencode

from django.db.models import Count, Q, QuerySet

from apps.pairs.models import PreferencePair
from apps.pairs.pair_search import FLAGS, Flag, flag_pairs

FLAG_WORDS: dict[Flag, str] = {
    "long": "one side over twice as long",
    "against_reward": "chosen has the lower reward",
    "same_answer": "same answer",
}
_VALUES: dict[str, list[str]] = {
    "status": PreferencePair.Status.values,
    "source": PreferencePair.Source.values,
    "flag": list(FLAGS),
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
    """Return the valid filters in the query of a URL."""
    return {name: query[name] for name, values in _VALUES.items() if query.get(name) in values}


def pair_query(shown: Mapping[str, str]) -> str:
    """Return the filters as the query of a URL, with its question mark; empty without filters."""
    return f"?{urlencode(shown)}" if shown else ""


def filter_pairs(pairs: QuerySet[PreferencePair], shown: Mapping[str, str]) -> QuerySet[PreferencePair]:
    exact = {name: value for name, value in shown.items() if name != "flag"}
    flag = next((flag for flag in get_args(Flag) if flag == shown.get("flag")), None)
    return flag_pairs(pairs.filter(**exact), flag) if flag else pairs.filter(**exact)


def find_place(pair: PreferencePair, shown: Mapping[str, str]) -> PairPlace:
    matching = filter_pairs(PreferencePair.objects.filter(pair_set=pair.pair_set_id), shown)
    ids = matching.order_by("id").values_list("id", flat=True)
    counts = matching.aggregate(
        before=Count("pk", filter=Q(pk__lt=pair.pk)),
        after=Count("pk", filter=Q(pk__gt=pair.pk)),
        proposed=Count("pk", filter=Q(status=PreferencePair.Status.PROPOSED)),
    )
    return PairPlace(
        number=counts["before"] + 1,
        total=counts["before"] + 1 + counts["after"],
        proposed=counts["proposed"],
        previous=ids.filter(id__lt=pair.pk).last(),
        next=ids.filter(id__gt=pair.pk).first(),
        next_proposed=next_proposed(pair, shown),
    )


def next_proposed(pair: PreferencePair, shown: Mapping[str, str]) -> int | None:
    """Return the next proposed pair of the set that matches the filters. The filter by status is ignored."""
    wanted = {**shown, "status": PreferencePair.Status.PROPOSED.value}
    later = filter_pairs(PreferencePair.objects.filter(pair_set=pair.pair_set_id, pk__gt=pair.pk), wanted)
    return later.order_by("pk").values_list("pk", flat=True).first()
