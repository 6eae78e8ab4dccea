"""Previous and next rollout in the list whose filters and order are in the URL."""

from typing import NamedTuple

from django.http import QueryDict

from apps.dashboard.tables.rollouts.listing import RolloutList
from apps.rollouts.models import Rollout, RolloutQuerySet
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time

PATIENCE = 2.0
"""Time limit in seconds to find the neighbours of a trace."""
_LONGEST = 8_000


class Neighbours(NamedTuple):
    previous: int | None
    next: int | None


def find_neighbours(listed: str, rollout: Rollout) -> Neighbours | None:
    """Return None if the query is not a list; neighbours are None if finding them takes too long."""
    if not listed or len(listed) > _LONGEST:
        return None
    there = RolloutList.read(QueryDict(listed))
    if not there.is_understood:
        return None
    rows = there.narrow(Rollout.objects.only("id", "reward", "finished_at"))
    cursor = there.cursor(rollout)
    try:
        with limit_query_time(there.parsed, seconds=PATIENCE):
            page = there.cut(rows, cursor, size=1)
            previous = _before(there, rows, rollout, cursor)
    except FilterTooSlow:
        return Neighbours(previous=None, next=None)
    return Neighbours(previous=previous, next=page.rows[0].pk if page.rows else None)


def _before(there: RolloutList, rows: RolloutQuerySet, rollout: Rollout, cursor: str) -> int | None:
    """Return the previous rollout, found by reversing the list.

    Rollouts without a value are last in both directions.
    """
    back, has_value = there.reversed(), there.has_value(rollout)
    found = back.cut(rows, cursor, has_value=has_value, size=1).rows
    if not found and has_value is False:
        found = back.cut(rows, "", has_value=True, size=1).rows
    return found[0].pk if found else None
