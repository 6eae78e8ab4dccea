"""Training sequences of all leaves of a graph, and the figures of its prefix check."""

from typing import NamedTuple

from msgspec.structs import replace

from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_tokens import GraphTokens
from apps.gym.traces.segments import (
    Sampled,
    Segment,
    TokenFigures,
    check_prefixes,
    find_break,
    join_line,
    stored_tokens,
)
from apps.gym.traces.tokens import read_shape


class LeafSegment(NamedTuple):
    """A training sequence on the path to `leaf`. Its calls and the calls of `sampled` are numbers of captured calls.

    `sampled` and the mask leave out calls that an earlier sequence already has.
    """

    leaf: int
    lineage: int
    segment: Segment
    sampled: list[Sampled]


def join_graph(graph: TraceGraph) -> list[LeafSegment]:
    """Return the sequences of all leaves, in which every sampled token of an effective call is trained once.

    Raises TokensUnreadable.
    """
    trained: set[int] = set()
    return [one for leaf in graph.leaves for one in join_leaf(graph, leaf, trained)]


def join_leaf(graph: TraceGraph, leaf: int, trained: set[int]) -> list[LeafSegment]:
    """Return the sequences of one leaf that train a call which is not yet in `trained`, and add these calls to it."""
    line = graph.line(leaf)
    found: list[LeafSegment] = []
    numbers = graph.calls_on(leaf)
    masked = {place for place, number in enumerate(numbers, start=1) if number in trained}
    for segment, sampled in join_line(line, masked):
        renamed = segment._replace(calls=[numbers[call - 1] for call in segment.calls])
        own = [replace(one, call=numbers[one.call - 1]) for one in sampled]
        found.append(LeafSegment(leaf, graph.calls[leaf].lineage or 1, renamed, own))
        trained.update(one.call for one in own)
    return found


def check_graph(graph: TraceGraph) -> TokenFigures:
    """Return the figures of an attempt from the first HEADER_BYTES of each kept call. Raises TokensUnreadable.

    A break is between a call and the ancestor that it is packed against.
    """
    if graph.is_line:
        return check_prefixes(stored_tokens(graph.events))
    tokens = GraphTokens(graph.calls, graph.parent)
    shapes = {call: read_shape(event.tokens) for call, event in graph.calls.items() if event.tokens is not None}
    captured = [call for call in shapes if call in graph.effective_calls]
    bases = {call: tokens.base(call) for call in captured}
    exact = [call for call in captured if bases[call] in shapes and shapes[call].shared >= shapes[bases[call]].total]
    breaks = [
        find_break(call, shapes[call], bases[call], shapes[bases[call]])
        for call in captured
        if bases[call] in shapes and call not in set(exact)
    ]
    continued = {bases[call] for call in exact}
    return TokenFigures(
        calls=len(graph.effective_calls),
        captured=len(captured),
        exact=len(exact),
        segments=len([call for call in captured if call not in continued]),
        generated=sum(shapes[call].generated for call in captured),
        breaks=breaks,
    )
