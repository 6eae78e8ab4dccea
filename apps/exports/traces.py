"""Read the traces of many rollouts: one query a chunk, one trace in memory at a time."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from apps.gym.events import TraceUnion, decode_event
from apps.rollouts.models import TraceEvent

ROWS = 500
"""Event rows fetched at once."""


def read_traces(attempts: Mapping[int, int], *, tokens: bool = False) -> Iterator[tuple[int, list[TraceUnion]]]:
    """(rollout id, events of that attempt) by ascending id; `attempts` maps rollout id to the attempt that counts.

    A rollout without stored events comes with an empty list. `tokens` reads the packed tokens of model calls as well.
    """
    rows = TraceEvent.objects.filter(rollout_id__in=list(attempts)).order_by("rollout_id", "attempt", "seq")
    if not tokens:
        rows = rows.defer("tokens")
    stream = groupby(rows.iterator(chunk_size=ROWS), key=lambda row: row.rollout_id)
    stored = next(stream, None)
    for rollout_id in sorted(attempts):
        events: list[TraceUnion] = []
        if stored and stored[0] == rollout_id:
            events = [_decode(row, tokens) for row in stored[1] if row.attempt == attempts[rollout_id]]
            stored = next(stream, None)
        yield rollout_id, events


def _decode(row: TraceEvent, tokens: bool) -> TraceUnion:
    return decode_event(row.payload, row.tokens if tokens else None)
