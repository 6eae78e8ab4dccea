"""Read the traces of many rollouts: one query a chunk, one trace in memory at a time."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from apps.gym.events import TraceUnion
from apps.rollouts.models import TraceEvent

ROWS = 500
"""Event rows fetched at once."""


def read_traces(attempts: Mapping[int, int]) -> Iterator[tuple[int, list[TraceUnion]]]:
    """(rollout id, events of that attempt) by ascending id; `attempts` maps rollout id to the attempt that counts.

    A rollout without stored events comes with an empty list.
    """
    rows = TraceEvent.objects.filter(rollout_id__in=list(attempts)).order_by("rollout_id", "attempt", "seq")
    stream = groupby(rows.iterator(chunk_size=ROWS), key=lambda row: row.rollout_id)
    stored = next(stream, None)
    for rollout_id in sorted(attempts):
        events: list[TraceUnion] = []
        if stored and stored[0] == rollout_id:
            events = [row.event for row in stored[1] if row.attempt == attempts[rollout_id]]
            stored = next(stream, None)
        yield rollout_id, events
