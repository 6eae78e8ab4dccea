"""Say where calls of one conversation do not continue each other, and in which items their requests differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from apps.gym.traces.canonical_items import item_digest, message_texts
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item, item_type

SHOWN = 6
"""Items of each side of a difference."""
CHARS = 100


def find_breaks(graph: TraceGraph, calls: Sequence[int]) -> list[tuple[int, str]]:
    """Return each call whose parent is not the call before it in the list, with the reason of its root."""
    pairs = pairwise(calls)
    return [(call, graph.calls[call].root_reason) for before, call in pairs if graph.parent(call) != before]


def describe_breaks(graph: TraceGraph, calls: Sequence[int]) -> str:
    """Return a report of the breaks: for each, the items of the conversation and of the request that differ."""
    lines = []
    broken = dict(find_breaks(graph, calls))
    for before, call in pairwise(calls):
        if call in broken:
            why = broken[call] or f"continues call {graph.parent(call)}"
            lines.append(f"call {call} does not continue call {before} ({why}), edited: {graph.calls[call].edited}")
            lines += _differences([*graph.request(before), *graph.calls[before].items], graph.request(call))
    return "\n".join(lines)


def _differences(known: Sequence[Item], sent: Sequence[Item]) -> Iterator[str]:
    """Yield the items that only one side has: `-` for the known conversation, `+` for the request."""
    sides = [[item for item in items if item_digest(item)] for items in (known, sent)]
    digests = [[item_digest(item) for item in items] for items in sides]
    for kind, old, old_end, new, new_end in SequenceMatcher(None, *digests, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        start = 0
        if (old_end - old, new_end - new) == (1, 1):
            pairs = enumerate(zip(_text(sides[0][old]), _text(sides[1][new]), strict=False))
            start = next((place for place, (one, other) in pairs if one != other), 0)
        for mark, items, first, end in (("-", sides[0], old, old_end), ("+", sides[1], new, new_end)):
            for place in range(first, min(end, first + SHOWN)):
                yield f"  {mark} item {place + 1}: {_describe(items[place], start)}"
            if end - first > SHOWN:
                yield f"  {mark} … {end - first - SHOWN} more items"


def _describe(item: Item, start: int) -> str:
    """Return kind and text of an item. If texts begin alike, show them from shortly before `start`."""
    begin = max(0, start - CHARS // 4)
    shown = ("…" if begin else "") + _text(item)[begin : begin + CHARS]
    return f"{item.get('role') or item_type(item)} {shown!r}"


def _text(item: Item) -> str:
    if item_type(item) == "message":
        return "\n".join(message_texts(item))
    if item_type(item) == "function_call":
        return f"{item.get('name')} {item.get('arguments')}"
    return str(item.get("output"))
