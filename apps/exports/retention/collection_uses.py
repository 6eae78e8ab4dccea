"""Count the objects that use rollouts of collections: exports, pair sets, queues, reviews, and unfinished work."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.db.models import Count, QuerySet

from apps.exports.models import Export
from apps.pairs.models import PairSet
from apps.reviews.models import Comment, Flag, ItemRollout, Review, RewardOverride
from apps.rollouts.models import Collection, Reverification

EXPORTS, PAIR_SETS, QUEUES, REVIEWS, REVERIFICATIONS = "exports", "pair sets", "queues", "reviews", "reverifications"
TRACKED_RUNS = "unsent tracked runs"
_ENDED = (Reverification.State.APPLIED, Reverification.State.CANCELLED, Reverification.State.FAILED)
Uses = dict[int, Counter[str]]
"""Number of objects that use a collection, by collection id and kind (`exports`, `pair sets`, …)."""


def find_uses(collections: Iterable[int]) -> Uses:
    """Return the uses of these collections. Collections without any have an empty counter."""
    uses: Uses = {pk: Counter() for pk in collections}
    sources = ("pair_set__collection", "pair_set__further")
    _count(uses, EXPORTS, Export.objects.values_list("pk", "collection", *sources))
    _count(uses, PAIR_SETS, PairSet.objects.values_list("pk", "collection", "further"))
    _count_rows(uses, QUEUES, ItemRollout.objects.all(), Count("item__queue", distinct=True))
    for model in (Review, Comment, Flag, RewardOverride):
        _count_rows(uses, REVIEWS, model._default_manager.all(), Count("pk"))
    _count(uses, REVIEWS, Review.objects.filter(rollout=None).values_list("pk", "item__entries__rollout__collection"))
    unfinished = Reverification.objects.exclude(state__in=_ENDED)
    _count(uses, REVERIFICATIONS, unfinished.values_list("pk", "collection"))
    # By the reverse relation, because the tracking app may import this one.
    unsent = Collection.objects.filter(pk__in=uses, tracked_runs__state="active")
    _count(uses, TRACKED_RUNS, unsent.values_list("tracked_runs", "pk"))
    return uses


def _count(uses: Uses, name: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Count each object once for each of its collections. A row is (id, collection ids)."""
    pairs = {(pk, collection) for pk, *collections in rows for collection in collections if collection in uses}
    for _, collection in pairs:
        uses[collection][name] += 1


def _count_rows(uses: Uses, name: str, rows: "QuerySet[Any]", number: Count) -> None:
    of_these = rows.filter(rollout__collection__in=uses).order_by()
    for collection, count in of_these.values_list("rollout__collection").annotate(number=number):
        uses[collection][name] += count
