"""Read the traces of many rollouts: one query a chunk, one trace in memory at a time."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter

from apps.gym.events import TraceUnion, decode_event
from apps.rollouts.models import TraceEvent

ROWS = 500
"""Event rows fetched at once."""


def read_traces(attempts: Mapping[int, int], *, tokens: bool = False) -> Iterator[tuple[int, list[TraceUnion]]]:
    """(rollout id, events of that attempt) by ascending id; `attempts` maps rollout id to the attempt that counts.

    A rollout without stored events comes with an empty list. `tokens` reads the packed tokens of model calls as well.
    """
    columns = ("rollout_id", "attempt", "payload", *(("tokens",) if tokens else ()))
    rows = TraceEvent.objects.filter(rollout_id__in=list(attempts)).order_by("rollout_id", "attempt", "seq")
    # Plain rows: to make a model instance of each event would take as long as all the rest of its way.
    stream = groupby(rows.values_list(*columns).iterator(chunk_size=ROWS), key=itemgetter(0))
    stored = next(stream, None)
    for rollout_id in sorted(attempts):
        events: list[TraceUnion] = []
        if stored and stored[0] == rollout_id:
            events = [decode_event(*event) for _, attempt, *event in stored[1] if attempt == attempts[rollout_id]]
            stored = next(stream, None)
        yield rollout_id, events
