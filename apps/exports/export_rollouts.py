"""The rollouts that an export may take: those that pass a filter of their table, or that are named."""

from collections.abc import Iterable

from apps.exports.export_filters import Filters
from apps.rollouts.models import RolloutQuerySet
from apps.rollouts.search.filters.filtered_rollouts import filter_rollouts


def narrow_rollouts(rollouts: RolloutQuerySet, filters: Filters) -> RolloutQuerySet:
    """Of these rollouts those that are selected: all, where neither a filter nor numbers are given."""
    if filters.rollouts:
        rollouts = rollouts.filter(pk__in=filters.rollouts)
    return filter_rollouts(rollouts, filters.q)


def find_unselected(rollouts: RolloutQuerySet, ids: Iterable[int], filters: Filters) -> frozenset[int]:
    """Of these ids those that are not selected; `rollouts` are the rows to look for them in. A query, or none."""
    if not filters.rollouts and not filters.q:
        return frozenset()
    return frozenset(ids) - frozenset(narrow_rollouts(rollouts, filters).order_by().values_list("pk", flat=True))
