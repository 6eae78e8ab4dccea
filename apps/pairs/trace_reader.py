"""Read the traces of many rollouts: a page of events a query, one trace in memory at a time."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from apps.gym.traces.events import TraceUnion, decode_event
from apps.rollouts.models import TraceEvent

ROWS = 500
"""Events read by one query."""
ROLLOUTS = 256
"""Rollouts that one query reads at most."""


def read_traces(attempts: Mapping[int, int], *, tokens: bool = False) -> Iterator[tuple[int, list[TraceUnion]]]:
    """(rollout id, events of that attempt) by ascending id; `attempts` maps rollout id to the attempt that counts.

    A rollout without stored events comes with an empty list. `tokens` reads the packed tokens of model calls as well.
    """
    columns = ("rollout_id", "attempt", "seq", "payload", *(("tokens",) if tokens else ()))
    stream = groupby(_read_events(sorted(attempts), columns), key=itemgetter(0))
    stored = next(stream, None)
    for rollout_id in sorted(attempts):
        events: list[TraceUnion] = []
        if stored and stored[0] == rollout_id:
            events = [decode_event(*event) for _, attempt, _, *event in stored[1] if attempt == attempts[rollout_id]]
            stored = next(stream, None)
        yield rollout_id, events


def _read_events(rollout_ids: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the events of these rollouts in the order of their key, as plain rows: model instances are as slow as all
    the rest of an export.

    A query asks for about as many rollouts as fill a page, since PostgreSQL may sort the events of all of them.
    """
    first, at_once = 0, ROLLOUTS // 8
    events = TraceEvent.objects.order_by("pk").values_list(*columns)
    after: tuple[Any, ...] | None = None
    while asked := rollout_ids[first : first + at_once]:
        rows = events.filter(rollout_id__in=asked)
        page = list((rows.filter(pk__gt=after) if after else rows)[:ROWS])
        yield from page
        if len(page) < ROWS:
            first, after = first + len(asked), None
            at_once = min(2 * at_once, ROLLOUTS)
        else:
            after = page[-1][:3]
            first = rollout_ids.index(after[0], first)
            at_once = max(1, len({row[0] for row in page}))
