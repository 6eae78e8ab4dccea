"""The 95 % intervals of mean rewards, for several collections in one query."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from django.db import connection

from apps.gym.metrics.clustered_intervals import mean_interval
from apps.rollouts.models import Collection

Interval = tuple[float, float]

MEASURED = 20_000
"""Maximum number of rewards to read, to keep overviews fast.

Larger collections show the interval only on their own page.
"""

_REMEMBERED = 500
_SECONDS = 600.0
# The cache key has all values that change with the rewards. Two swapped rewards keep the sum, so entries also expire.
_known: OrderedDict[tuple[object, ...], tuple[float, Interval | None]] = OrderedDict()

# Deviations from the collection's own mean are squared, for precision.
_SPREADS = """
    SELECT groups.collection_id, COUNT(*), SUM((total - size * mean) * (total - size * mean)), MIN(mean), MIN(low),
        MAX(high), MAX(partial)
    FROM (
        SELECT r.collection_id, COUNT(*) AS size, SUM(r.reward) AS total, MIN(r.reward) AS low,
            MAX(r.reward) AS high, MAX(CASE WHEN r.reward IN (0, 1) THEN 0 ELSE 1 END) AS partial
        FROM rollouts_rollout r
        WHERE r.collection_id IN ({places}) AND r.status = 'completed' AND r.reward IS NOT NULL
        GROUP BY r.collection_id, r.task_id
    ) groups
    JOIN (
        SELECT id, reward_sum / rewarded AS mean FROM rollouts_collection WHERE id IN ({places}) AND rewarded > 0
    ) means ON means.id = groups.collection_id
    GROUP BY groups.collection_id
"""


def measure_intervals(collections: Sequence[Collection]) -> dict[int, Interval]:
    """Return the intervals by collection id, clustered by task.

    Collections with rewards of fewer than five tasks are left out. So are later collections once MEASURED rewards are
    exceeded in total.
    """
    now = time.monotonic()
    intervals: dict[int, Interval | None] = {}
    chosen: dict[int, int] = {}
    for collection in collections:
        until, known = _known.get(_rewards_of(collection), (0.0, None))
        if until > now:
            intervals[collection.pk] = known
        elif collection.rewarded and sum(chosen.values()) + collection.rewarded <= MEASURED:
            chosen[collection.pk] = collection.rewarded
    # Runs even without ids, so that every page has the same number of queries.
    ids = list(chosen) or [0]
    with connection.cursor() as cursor:
        cursor.execute(_SPREADS.format(places=", ".join(["%s"] * len(ids))), [*ids, *ids])
        rows = cursor.fetchall()
    found = {pk: _interval(chosen[pk], figures) for pk, *figures in rows}
    for collection in collections:
        if collection.pk in chosen:
            intervals[collection.pk] = found.get(collection.pk)
            _known[_rewards_of(collection)] = now + _SECONDS, intervals[collection.pk]
    while len(_known) > _REMEMBERED:
        _known.popitem(last=False)
    return {pk: interval for pk, interval in intervals.items() if interval is not None}


def _interval(size: int, figures: Sequence[Any]) -> Interval | None:
    tasks, squares, mean, low, high, partial = figures
    return mean_interval(mean=mean, squares=squares, size=size, tasks=tasks, low=low, high=high, is_binary=not partial)


def _rewards_of(collection: Collection) -> tuple[object, ...]:
    return collection.pk, collection.created_at, collection.completed, collection.rewarded, collection.reward_sum
