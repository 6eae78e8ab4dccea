"""Split a long trace into chunks that the page loads while scrolling.

Chunks begin at steps, so that calls stay together with their results.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from apps.dashboard.traces.cards import Block, Card, Output

CHUNK_STEPS = 50
CHUNKS_A_PAGE = 4
"""Chunks per page of the outline."""
CHUNK_CHARACTERS = 240_000
"""Maximum characters of text in a chunk. If it has more, the remaining texts are shortened."""
_SHORT = 1_200


@dataclass(frozen=True, slots=True)
class Span:
    """Events `first` to `last`. `steps` counts the events other than results of calls."""

    first: int
    last: int
    steps: int

    def holds(self, seq: int) -> bool:
        return self.first <= seq <= self.last


def split_events(kinds: Iterable[tuple[int, str]], size: int = CHUNK_STEPS) -> list[Span]:
    """Split (seq, kind) rows into spans of about `size` steps. A small remainder is added to the last span."""
    spans: list[Span] = []
    first = last = -1
    steps = 0
    for seq, kind in kinds:
        begins = kind != "tool_result"
        if first >= 0 and begins and steps >= size:
            spans.append(Span(first, last, steps))
            first, steps = seq, 0
        first, last = (seq if first < 0 else first), seq
        steps += begins
    if first >= 0:
        spans.append(Span(first, last, steps))
    if len(spans) > 1 and spans[-1].steps < size // 2:
        rest = spans.pop()
        spans[-1] = Span(spans[-1].first, rest.last, spans[-1].steps + rest.steps)
    return spans


def pages_of(spans: Sequence[Span]) -> list[Span]:
    """Merge the spans into pages of the outline."""
    groups = [spans[start : start + CHUNKS_A_PAGE] for start in range(0, len(spans), CHUNKS_A_PAGE)]
    return [Span(group[0].first, group[-1].last, sum(each.steps for each in group)) for group in groups]


def span_of(spans: Sequence[Span], seq: int) -> Span | None:
    return next((span for span in spans if span.holds(seq)), None)


def shorten(cards: Iterable[Card], budget: int = CHUNK_CHARACTERS) -> tuple[Card, ...]:
    """Return the cards with about `budget` characters of text in total. Texts beyond the budget are shortened."""
    shortened = []
    for card in cards:
        blocks = []
        for block in card.blocks:
            budget -= _shown(block)
            blocks.append(block if budget >= 0 else _shorten_block(block))
        shortened.append(card if budget >= 0 else replace(card, blocks=tuple(blocks)))
    return tuple(shortened)


def _shown(block: Block) -> int:
    shown = min(len(block.body.text), block.body.limit)
    return shown + (min(len(block.result.body.text), block.result.body.limit) if block.result else 0)


def _shorten_block(block: Block) -> Block:
    result: Output | None = block.result
    if result is not None:
        result = replace(result, body=replace(result.body, limit=_SHORT))
    return replace(block, body=replace(block.body, limit=_SHORT), result=result)
