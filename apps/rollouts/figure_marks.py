"""Mark the tasks whose rollouts change, so that figures are not read from counts made before the change."""

from collections.abc import Iterable
from itertools import chain

from django.db import connection
from django.utils import timezone

from apps.rollouts.models import SPAN_BITS

_MARK = "INSERT INTO rollouts_figuremark (collection_id, span, marked_at) VALUES {places}"
_MARKS_A_STATEMENT = 250


def mark_changed(tasks: Iterable[tuple[int, int]]) -> None:
    """Mark (collection id, task id) of changed rollouts. Call it in the transaction of every change to rollouts.

    Claims need no mark: no figure depends on whether an unfinished rollout runs.
    """
    spans = sorted({(collection_id, task_id >> SPAN_BITS) for collection_id, task_id in tasks})
    if not spans:
        return
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    with connection.cursor() as cursor:
        for start in range(0, len(spans), _MARKS_A_STATEMENT):
            chunk = [(*span, now) for span in spans[start : start + _MARKS_A_STATEMENT]]
            places = ", ".join(["(%s, %s, %s)"] * len(chunk))
            cursor.execute(_MARK.format(places=places), list(chain.from_iterable(chunk)))
