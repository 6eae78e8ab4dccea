"""Ranges of tasks within a collection. Figures are counted by range; the ranges together cover all tasks."""

from typing import NamedTuple

from apps.rollouts.models import LAST_SPAN, SPAN_BITS, Collection, Rollout, RolloutQuerySet


class TaskRange(NamedTuple):
    """Rollouts of a collection with task ids from `first` to `last`; the parameters of IN_RANGE."""

    collection: int
    first: int
    last: int

    @classmethod
    def of_spans(cls, collection_id: int, first: int, last: int) -> "TaskRange":
        return cls(collection_id, first << SPAN_BITS, ((last + 1) << SPAN_BITS) - 1)

    def rollouts(self) -> RolloutQuerySet:
        return Rollout.objects.filter(collection=self.collection, task__gte=self.first, task__lte=self.last)


IN_RANGE = "r.collection_id = %s AND r.task_id BETWEEN %s AND %s"
"""SQL condition on rollouts `r`."""
SOLVE_THRESHOLD = "(SELECT solve_threshold FROM rollouts_collection WHERE id = %s)"
"""SQL of the smallest reward that solves a task of a collection; its parameter is the id of the collection."""


def whole(collection: Collection) -> TaskRange:
    return TaskRange.of_spans(collection.pk, 0, LAST_SPAN)
