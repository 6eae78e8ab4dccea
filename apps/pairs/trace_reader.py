"""Read the traces of many rollouts, one trace in memory at a time."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from apps.gym.traces.events import TraceUnion, decode_event
from apps.gym.traces.graph import main_line
from apps.rollouts.models import TraceEvent
from apps.rollouts.trace_payloads import STORED, unpack_each
from apps.tasks.stored_images import with_images

ROWS = 500
"""Events per query."""
ROLLOUTS = 256
"""Maximum rollouts per query."""


def read_traces(
    attempts: Mapping[int, int], *, tokens: bool = False, whole: bool = False, images: bool = False
) -> Iterator[tuple[int, list[TraceUnion]]]:
    """Yield (rollout id, events) by ascending id.

    `attempts` maps each rollout id to the attempt whose events are read. Without stored events, the list is empty.
    `tokens` also reads the packed tokens of model calls. `images` puts images in place of references. The events are
    the main path of the trace, or with `whole` all events as stored.
    """
    columns = ("rollout_id", "attempt", "seq", STORED, *(("tokens",) if tokens else ()))
    stream = groupby(_read_events(sorted(attempts), columns), key=itemgetter(0))
    read_images = with_images if images else str
    stored = next(stream, None)
    for rollout_id in sorted(attempts):
        events: list[TraceUnion] = []
        if stored and stored[0] == rollout_id:
            rows = [row[3:] for row in stored[1] if row[1] == attempts[rollout_id]]
            events = [decode_event(read_images(payload), *packed) for payload, *packed in rows]
            stored = next(stream, None)
        yield rollout_id, events if whole else main_line(events)


def _read_events(rollout_ids: Sequence[int], columns: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the events of these rollouts, ordered by key, as plain tuples.

    Model instances would double the time of an export. Each query covers about as many rollouts as fill a page, because
    PostgreSQL may sort all of their events.
    """
    first, at_once = 0, ROLLOUTS // 8
    events = TraceEvent.objects.order_by("pk").values_list(*columns)
    after: tuple[Any, ...] | None = None
    while asked := rollout_ids[first : first + at_once]:
        rows = events.filter(rollout_id__in=asked)
        page = list((rows.filter(pk__gt=after) if after else rows)[:ROWS])
        payloads = unpack_each([row[3] for row in page])
        yield from ((*row[:3], payload, *row[4:]) for row, payload in zip(page, payloads, strict=True))
        if len(page) < ROWS:
            first, after = first + len(asked), None
            at_once = min(2 * at_once, ROLLOUTS)
        else:
            after = page[-1][:3]
            first = rollout_ids.index(after[0], first)
            at_once = max(1, len({row[0] for row in page}))
