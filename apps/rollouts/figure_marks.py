"""Mark the tasks whose rollouts change, so that figures are not read from counts made before the change."""

from collections.abc import Iterable

from django.db import connection
from django.utils import timezone

from apps.rollouts.models import SPAN_BITS
from apps.rollouts.sql_arrays import select_pairs

_MARK = "INSERT INTO rollouts_figuremark (marked_at, collection_id, span) SELECT %s, spans.* FROM ({spans}) spans"


def mark_changed(tasks: Iterable[tuple[int, int]]) -> None:
    """Mark (collection id, task id) of changed rollouts. Call it in the transaction of every change to rollouts.

    Claims need no mark: no figure depends on whether an unfinished rollout runs.
    """
    spans = sorted({(collection_id, task_id >> SPAN_BITS) for collection_id, task_id in tasks})
    if not spans:
        return
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    with connection.cursor() as cursor:
        query, given = select_pairs(spans)
        cursor.execute(_MARK.format(spans=query), [now, *given])
