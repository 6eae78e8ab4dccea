"""A sample of a collection's rewards with their lengths: as cheap of a million rollouts as of a thousand."""

import random
from typing import Any, NamedTuple

from django.db.models import QuerySet

from apps.rollouts.models import Collection, Rollout

SHOWN = 400
_MOST_LOOKED_UP = 8_000


class Scattered(NamedTuple):
    rollout: int
    reward: float
    output_tokens: int


def scatter_rewards(collection: Collection, *, most: int = SHOWN) -> list[Scattered]:
    """All rewarded rollouts where there are no more than `most`, else about so many drawn at random, by id."""
    rewarded = Rollout.objects.filter(collection=collection).rewarded().order_by("pk")
    columns: QuerySet[Any, Any] = rewarded.values_list("pk", "reward", "output_tokens")
    if collection.rewarded <= most:
        return [Scattered(*row) for row in columns[:most]]
    mine = Rollout.objects.filter(collection=collection)
    first = mine.order_by("pk").values_list("pk", flat=True).first() or 0
    last = mine.order_by("-pk").values_list("pk", flat=True).first() or 0
    # Ids between the two that belong to others, or have no reward, are drawn in vain: so many more are needed.
    among = last - first + 1
    wanted = min(_MOST_LOOKED_UP, among, 1 + round(1.3 * most * among / collection.rewarded))
    draw = random.Random(collection.pk)
    ids = draw.sample(range(first, last + 1), wanted)
    found = [Scattered(*row) for row in columns.filter(pk__in=ids)]
    return sorted(draw.sample(found, most)) if len(found) > most else found
