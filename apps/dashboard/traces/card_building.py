"""Build the cards of an attempt, or of a part of it that begins with a turn."""

from collections.abc import Callable, Iterable

import msgspec

from apps.dashboard.traces.bodies import read_output
from apps.dashboard.traces.call_outputs import Pairing, Read, tool_output
from apps.dashboard.traces.cards import Block, Capture, Card, CardLink, Trace
from apps.dashboard.traces.event_content import NOT_ASKED, image_blocks, read_content
from apps.dashboard.traces.lanes import Lanes
from apps.dashboard.traces.step_flags import calls_of, find_flags
from apps.gym.traces.events import (
    AgentEnd,
    JudgeCall,
    ModelCall,
    ToolResult,
    TraceUnion,
    Verification,
    decode_event,
    encode_event,
    event_kind,
    event_tokens,
)
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_segments import check_graph
from apps.gym.traces.items import Item
from apps.gym.traces.main_path import AMBIGUOUS, WHY_PATH
from apps.gym.traces.segments import check_prefixes
from apps.gym.traces.tokens import TokensUnreadable

Row = tuple[int, str, str, bytes | None]
"""`seq`, `kind`, `payload`, and the header of the packed tokens."""


def build_trace(rows: Iterable[Row], find_lanes: Callable[[], Lanes] | None = None) -> Trace:
    """Return the cards of these rows, in order.

    Calls and results are matched within the rows, those of captured calls within the lanes of the whole attempt, which
    `find_lanes` returns.
    """
    reads = [Read(seq, kind, payload, decode(payload), tokens) for seq, kind, payload, tokens in rows]
    pairing, cards = Pairing(reads), list[Card]()
    lanes: Lanes | None = None
    if any(
        isinstance(read.event, AgentEnd) or (isinstance(read.event, ModelCall) and read.event.call) for read in reads
    ):
        lanes = find_lanes() if find_lanes else Lanes((read.seq, read.event) for read in reads)
    before: list[Item] = []
    for index, read in enumerate(reads):
        card = _card(index, read, pairing, before, lanes)
        if card is not None:
            cards.append(card)
        if isinstance(read.event, ModelCall):
            before = calls_of(read.event)
    return Trace(cards=tuple(cards), last_seq=reads[-1].seq if reads else -1)


def show_events(events: Iterable[TraceUnion]) -> Trace:
    """Return the cards of events that are not stored."""
    return build_trace(
        (seq, event_kind(event), encode_event(event), event_tokens(event)) for seq, event in enumerate(events)
    )


def show_one(seq: int, event: TraceUnion) -> Card:
    """Return the card of a single event: a call is shown without its result, and a result without its call."""
    (card,) = build_trace([(seq, event_kind(event), encode_event(event), None)]).cards
    return card


def read_capture(calls: Iterable[tuple[int, bytes | None]]) -> Capture | None:
    """Return the capture, or None if there are no readable tokens.

    `calls` has (seq, header of the packed tokens) of each model call.
    """
    found = list(calls)
    try:
        figures = check_prefixes([tokens for _, tokens in found])
    except TokensUnreadable:
        return None  # the card of the call shows the problem
    return Capture(figures, {call: seq for call, (seq, _) in enumerate(found, start=1)}) if figures.captured else None


def read_graph_capture(graph: TraceGraph) -> Capture | None:
    """Return the capture of a graph, whose calls need only the head of their tokens."""
    try:
        figures = check_graph(graph)
    except TokensUnreadable:
        return None
    return Capture(figures, graph.seq_of) if figures.captured else None


def decode(payload: str) -> TraceUnion | None:
    """Return the decoded event, or None if its kind or shape is unknown."""
    try:
        return decode_event(payload)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _card(index: int, read: Read, pairing: Pairing, before: list[Item], lanes: Lanes | None) -> Card | None:
    event = read.event
    if event is None:
        block = Block("json", "event", read_output(read.payload).at(read.seq, "event"))
        return Card(read.seq, read.kind, read.kind, (block,), flags=tuple(find_flags(None, (), [])))
    if isinstance(event, ToolResult):
        is_shown = pairing.is_shown((index, 0)) or (lanes is not None and lanes.is_claimed(read.seq))
        return None if is_shown else _result_without_call(read, event)
    place = lanes.place(event.call) if lanes and isinstance(event, ModelCall) and event.call else None
    title, facts, blocks = read_content(read.seq, index, event, pairing, tokens=read.tokens, place=place)
    links = place.links if place else ()
    if isinstance(event, AgentEnd) and lanes and event.command == "finish":
        path, last = lanes.main_path()
        links = () if last is None else (CardLink("main path ends at", last),)
        why = AMBIGUOUS if path.ambiguous else WHY_PATH.get(path.reason, "")
        facts = (*facts, ("why this path", why)) if why else facts
    verified = event if isinstance(event, Verification) else None
    return Card(
        seq=read.seq,
        kind=read.kind,
        title=title,
        facts=facts,
        blocks=blocks,
        at=event.at,
        duration=event.duration,
        reward=verified.counted_reward if verified else None,
        components=tuple(verified.components.items()) if verified else (),
        flags=tuple(find_flags(event, blocks, place.before if place else before)),
        is_captured=place is not None,
        lane=place.lane if place else None,
        mark=place.mark if place else "",
        links=links,
        tokens=event.usage.get("output_tokens", 0) if isinstance(event, ModelCall | JudgeCall) else 0,
    )


def _result_without_call(read: Read, event: ToolResult) -> Card:
    output = tool_output(read.seq, event)
    block = Block("output", f"{event.name} → result", output.body, mark=event.error or NOT_ASKED)
    flags = tuple(find_flags(event, (block,), []))
    blocks = (block, *image_blocks(output.images))
    return Card(read.seq, read.kind, "Tool result", blocks, at=event.at, duration=event.duration, flags=flags)
