"""Read the events and cards of one attempt, in chunks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db.models import BinaryField, QuerySet
from django.db.models.functions import Substr

from apps.dashboard.traces.card_building import Row, build_trace, decode, read_capture, read_graph_capture
from apps.dashboard.traces.cards import Capture, Card, LaneRun, Trace, group_lanes
from apps.dashboard.traces.chunks import Span, pages_of, shorten, span_of, split_events
from apps.dashboard.traces.lanes import Lanes
from apps.dashboard.traces.outline import Line, outline
from apps.gym.traces.events import ErrorRaised, decode_event
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.tokens import HEADER_BYTES, is_packed_for_graph
from apps.rollouts.models import Rollout, TraceEvent


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a trace. `cards` is None if the page loads it later."""

    span: Span
    cards: tuple[Card, ...] | None = None

    @property
    def runs(self) -> list[LaneRun]:
        return group_lanes(self.cards or ())


@dataclass(frozen=True, slots=True)
class OutlinePage:
    span: Span
    lines: list[Line] | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """Initial content of a trace page: all chunks, some of them with cards."""

    chunks: list[Chunk]
    pages: list[OutlinePage]
    last_seq: int = -1
    steps: int = 0

    @property
    def is_large(self) -> bool:
        return len(self.chunks) > 1


def events_of(rollout: Rollout, attempt: int) -> QuerySet[TraceEvent]:
    return rollout.events.filter(attempt=attempt).order_by("seq")


def rows_of(events: QuerySet[TraceEvent]) -> Iterable[Row]:
    """Yield event rows, with only the header of the packed tokens, which contains their number."""
    head = Substr("tokens", 1, HEADER_BYTES, output_field=BinaryField())
    return events.values_list("seq", "kind", "payload", head)


def read_lanes(rollout: Rollout, attempt: int) -> Lanes:
    rows = events_of(rollout, attempt).filter(kind__in=("model_call", "tool_result", "agent_end"))
    return Lanes((seq, decode(payload)) for seq, payload in rows.values_list("seq", "payload"))


def lanes_of(rollout: Rollout, attempt: int) -> Callable[[], Lanes]:
    """Return a function that reads the lanes on its first call."""
    return cache(lambda: read_lanes(rollout, attempt))


def read_trace(rollout: Rollout, attempt: int) -> Trace:
    return build_trace(rows_of(events_of(rollout, attempt)), lanes_of(rollout, attempt))


def read_spans(rollout: Rollout, attempt: int) -> list[Span]:
    return split_events(events_of(rollout, attempt).values_list("seq", "kind"))


def read_cards(
    rollout: Rollout, attempt: int, span: Span, find_lanes: Callable[[], Lanes] | None = None
) -> tuple[Card, ...]:
    events = events_of(rollout, attempt).filter(seq__range=(span.first, span.last))
    return build_trace(rows_of(events), find_lanes or lanes_of(rollout, attempt)).cards


def open_trace(rollout: Rollout, attempt: int, *, step: int | None = None, at_end: bool = False) -> Opened:
    """Return the trace with the cards of the chunk of `step`, by default the first chunk.

    `at_end` also loads the last chunk. Other chunks have no cards.
    """
    spans = read_spans(rollout, attempt)
    if not spans:
        return Opened([], [])
    wanted = {(step is not None and span_of(spans, step)) or spans[0]}
    if at_end:
        wanted.add(spans[-1])
    pages = pages_of(spans)
    open_pages = [page for page in pages if any(page.holds(each.first) for each in wanted)]
    find_lanes = lanes_of(rollout, attempt)
    read = {page: read_cards(rollout, attempt, page, find_lanes) for page in open_pages}
    cards = [card for each in read.values() for card in each]
    commented = find_commented(rollout, attempt)
    return Opened(
        chunks=[
            Chunk(span, shorten(card for card in cards if span.holds(card.seq)) if span in wanted else None)
            for span in spans
        ],
        pages=[OutlinePage(page, outline(read[page], commented) if page in read else None) for page in pages],
        last_seq=spans[-1].last,
        steps=sum(span.steps for span in spans),
    )


def open_chunk(rollout: Rollout, attempt: int, first: int) -> Chunk | None:
    """Return the chunk with this event."""
    span = span_of(read_spans(rollout, attempt), first)
    return Chunk(span, shorten(read_cards(rollout, attempt, span))) if span else None


def find_next(rollout: Rollout, attempt: int, chunk: Chunk) -> int | None:
    """Return the number of the first event after this chunk."""
    return events_of(rollout, attempt).filter(seq__gt=chunk.span.last).values_list("seq", flat=True).first()


def open_outline(rollout: Rollout, attempt: int, first: int) -> OutlinePage | None:
    """Return the page of the outline with this event."""
    span = span_of(pages_of(read_spans(rollout, attempt)), first)
    if span is None:
        return None
    return OutlinePage(span, outline(read_cards(rollout, attempt, span), find_commented(rollout, attempt)))


def find_commented(rollout: Rollout, attempt: int) -> frozenset[int]:
    """Return the numbers of events with comments. Comments refer to the latest attempt."""
    if attempt != rollout.attempt:
        return frozenset()
    return frozenset(seq for seq in rollout.comments.values_list("seq", flat=True) if seq is not None)


def read_turn(rollout: Rollout, attempt: int, seq: int) -> tuple[Card, ...]:
    """Return the cards of the turn with this event, so that calls have their results."""
    events = events_of(rollout, attempt)
    begins = events.filter(seq__lte=seq).exclude(kind="tool_result").order_by("-seq").values_list("seq", flat=True)
    first = next(iter(begins[:1]), seq)
    next_turn = events.filter(seq__gt=seq).exclude(kind="tool_result").values_list("seq", flat=True)
    end = next(iter(next_turn[:1]), None)
    rows = events.filter(seq__gte=first)
    rows = rows if end is None else rows.filter(seq__lt=end)
    return build_trace(rows_of(rows), lanes_of(rollout, attempt)).cards


def find_capture(rollout: Rollout, attempt: int) -> Capture | None:
    head = Substr("tokens", 1, HEADER_BYTES, output_field=BinaryField())
    calls = events_of(rollout, attempt).filter(kind="model_call")
    heads = list(calls.values_list("seq", head))
    if any(is_packed_for_graph(tokens) for _, tokens in heads):
        return read_graph_capture(read_graph(calls, head))
    return read_capture(heads)


def read_graph(events: QuerySet[TraceEvent], *tokens: Any) -> TraceGraph:
    """Return the graph of these events, with the packed tokens in the column `tokens` if given."""
    read = [(seq, decode_event(*row)) for seq, *row in events.values_list("seq", "payload", *tokens)]
    return TraceGraph([event for _, event in read], [seq for seq, _ in read])


def place_of_error(rollout: Rollout, attempt: int) -> int | None:
    """Return the number of the event with the error; None if no event has it, for example after a lost worker."""
    errors = events_of(rollout, attempt).filter(kind="error").order_by("-seq")
    for seq, payload in errors.values_list("seq", "payload"):
        event = decode(payload)
        if isinstance(event, ErrorRaised) and event.message == rollout.error_message:
            return seq
    return None
