"""Mark the tasks whose rollouts change, so that figures are not read from counts made before the change."""

import json
from collections.abc import Iterable

from django.db import connection
from django.utils import timezone

from apps.rollouts.models import SPAN_BITS

_MARK = "INSERT INTO rollouts_figuremark (marked_at, collection_id, span) SELECT %s{moment}, {spans}"
_POSTGRES_MARK = _MARK.format(moment="::timestamptz", spans="* FROM unnest(%s::bigint[], %s::bigint[])")
_SQLITE_MARK = _MARK.format(moment="", spans="value->>0, value->>1 FROM json_each(%s)")


def mark_changed(tasks: Iterable[tuple[int, int]]) -> None:
    """Mark (collection id, task id) of changed rollouts. Call it in the transaction of every change to rollouts.

    Claims need no mark: no figure depends on whether an unfinished rollout runs.
    """
    spans = sorted({(collection_id, task_id >> SPAN_BITS) for collection_id, task_id in tasks})
    if not spans:
        return
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_POSTGRES_MARK, [now, *map(list, zip(*spans, strict=True))])
        else:
            cursor.execute(_SQLITE_MARK, [now, json.dumps(spans)])
