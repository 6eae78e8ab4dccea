"""Tokens of captured calls in a graph: packing, reading, and training sequences of all leaves.

A call is packed against its nearest ancestor with tokens, which its packed tokens name.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from apps.gym.traces.segments import (
    Sampled,
    Segment,
    TokenFigures,
    check_prefixes,
    find_break,
    join_line,
    stored_tokens,
)
from apps.gym.traces.tokens import (
    LAST_BASE,
    TokenCapture,
    TokensUnreadable,
    pack_tokens,
    read_base,
    read_shape,
    repack_in_line,
    unpack_tokens,
)

if TYPE_CHECKING:
    from apps.gym.traces.graph import TraceGraph

PACKER_BYTES = 4 * 1024 * 1024


class TokenPacker:
    """Packs the calls of one attempt as they complete.

    It keeps the ids of the calls used last, up to `most` bytes. Without the ids of an ancestor, a call is packed
    against an earlier one, or whole.
    """

    def __init__(self, most: int = PACKER_BYTES) -> None:
        self._most = most
        self._parents: dict[int, int] = {}
        self._ids: OrderedDict[int, bytes] = OrderedDict()
        self._held = 0

    def pack(self, call: int, parent: int, capture: TokenCapture | None) -> bytes | None:
        """Return the bytes to store for a call; None without tokens. Every call must be given, in any order."""
        self._parents[call] = parent
        if capture is None:
            return None
        base = parent
        while base and (base not in self._ids or base > LAST_BASE):
            base = self._parents.get(base, 0)
        before = self._ids.get(base, b"")
        if base:
            self._ids.move_to_end(base)
        self._ids[call] = capture.ids
        self._held += len(capture.ids)
        while self._held > self._most and len(self._ids) > 1:
            self._held -= len(self._ids.popitem(last=False)[1])
        return pack_tokens(capture, before=before, base=base)


class GraphTokens:
    """The tokens of the calls of a graph."""

    def __init__(self, graph: "TraceGraph") -> None:
        self._graph = graph
        self._captures: dict[int, TokenCapture] = {}

    def base(self, call: int) -> int:
        """Return the call whose ids come before those of `call`; 0 for none. Raises TokensUnreadable."""
        stored = self._graph.calls[call].tokens
        named = read_base(stored) if stored is not None else None
        if named is not None:
            return named
        ancestor = self._graph.parent(call)
        while ancestor and self._graph.calls[ancestor].tokens is None:
            ancestor = self._graph.parent(ancestor)
        return ancestor

    def capture(self, call: int) -> TokenCapture:
        """Return the tokens of a call. Raises TokensUnreadable, also for a call without tokens."""
        wanted = [call]
        while wanted[-1] not in self._captures and (base := self._checked_base(wanted[-1])):
            wanted.append(base)
        before = b""
        for number in reversed(wanted):
            if number not in self._captures:
                self._captures[number] = unpack_tokens(self._stored(number), before=before)
            before = self._captures[number].ids
        return self._captures[call]

    def in_line(self, call: int, previous: int) -> bytes:
        """Return the tokens of a call packed for a line in which `previous` is the call with tokens before it.

        Unreadable tokens become an empty text, so that readers of the line report them.
        """
        try:
            if self.base(call) == previous:
                return repack_in_line(self._stored(call))
            return pack_tokens(self.capture(call), before=self.capture(previous).ids if previous else b"")
        except TokensUnreadable:
            return b""

    def _checked_base(self, call: int) -> int:
        base = self.base(call)
        if base >= call or (base and base not in self._graph.calls):
            raise TokensUnreadable("the packed tokens continue a missing call")
        return base

    def _stored(self, call: int) -> bytes:
        stored = self._graph.calls[call].tokens
        if stored is None:
            raise TokensUnreadable("the packed tokens continue a call without tokens")
        return stored


class LeafSegment(NamedTuple):
    """A training sequence on the path to `leaf`. Its calls and those of `sampled` are numbers of captured calls.

    `sampled` and the mask leave out calls that an earlier sequence trains.
    """

    leaf: int
    lineage: int
    segment: Segment
    sampled: list[Sampled]


def join_graph(graph: "TraceGraph") -> list[LeafSegment]:
    """Return the sequences of all leaves, in which every sampled token of a kept call is trained exactly once.

    Raises TokensUnreadable.
    """
    trained: set[int] = set()
    return [one for leaf in graph.leaves for one in join_leaf(graph, leaf, trained)]


def join_leaf(graph: "TraceGraph", leaf: int, trained: set[int]) -> list[LeafSegment]:
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


def check_graph(graph: "TraceGraph") -> TokenFigures:
    """Return the figures of an attempt from the first HEADER_BYTES of each kept call. Raises TokensUnreadable.

    A break is between a call and the ancestor that it is packed against.
    """
    if graph.is_line:
        return check_prefixes(stored_tokens(graph.events))
    tokens = GraphTokens(graph)
    shapes = {call: read_shape(event.tokens) for call, event in graph.calls.items() if event.tokens is not None}
    captured = [call for call in shapes if call in graph.kept]
    bases = {call: tokens.base(call) for call in captured}
    exact = [call for call in captured if bases[call] in shapes and shapes[call].shared >= shapes[bases[call]].total]
    breaks = [
        find_break(call, shapes[call], bases[call], shapes[bases[call]])
        for call in captured
        if bases[call] in shapes and call not in set(exact)
    ]
    continued = {bases[call] for call in exact}
    return TokenFigures(
        calls=len(graph.kept),
        captured=len(captured),
        exact=len(exact),
        segments=len([call for call in captured if call not in continued]),
        generated=sum(shapes[call].generated for call in captured),
        breaks=breaks,
    )
