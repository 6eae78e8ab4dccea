"""Compare two texts by Myers' algorithm: by words, by lines if there are too many, within a limit."""

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import eq
from typing import Literal, NamedTuple, TypeVar

MOST_TOKENS = 6_000
MOST_EDITS = 400
"""Texts with more edits are compared by lines, and those with more line edits as a whole.

Time grows with the square of the number of edits.
"""

_WORDS = re.compile(r"\d+(?:[.,]\d+)*|\w+|\s+|[^\w\s]")
T = TypeVar("T")
Kind = Literal["same", "removed", "new"]


class Part(NamedTuple):
    kind: Kind
    text: str


def compare_words(old: str, new: str) -> list[Part]:
    """Return equal, removed and added parts in order.

    Without the added parts they are `old`, without the removed ones `new`.
    """
    if old == new:
        return [Part("same", old)] if old else []
    for tokens in (_WORDS.findall, lambda text: text.splitlines(keepends=True)):
        parts = _compare(tokens(old), tokens(new))
        if parts is not None:
            return _join(parts)
    return _join(_compare(_WORDS.findall(old), _WORDS.findall(new), whole=True) or [])


def common_ends(one: Sequence[T], other: Sequence[T], same: Callable[[T, T], bool] = eq) -> tuple[int, int]:
    """Return the number of equal entries at the start, and at the end among the rest."""
    start, shortest = 0, min(len(one), len(other))
    while start < shortest and same(one[start], other[start]):
        start += 1
    end = 0
    while end < shortest - start and same(one[-1 - end], other[-1 - end]):
        end += 1
    return start, end


def _compare(old: Sequence[str], new: Sequence[str], *, whole: bool = False) -> list[Part] | None:
    """Return the common start and end, and between them the shortest edit, or with `whole` one replacement.

    None if the texts differ too much.
    """
    start, end = common_ends(old, new)
    old_middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    if whole:
        middle: list[Part] | None = [Part("removed", "".join(old_middle)), Part("new", "".join(new_middle))]
    else:
        middle = _edit(old_middle, new_middle) if len(old_middle) + len(new_middle) <= MOST_TOKENS else None
    if middle is None:
        return None
    head, tail = "".join(old[:start]), "".join(old[len(old) - end :])
    return [Part("same", head), *middle, Part("same", tail)]


def _edit(old: Sequence[str], new: Sequence[str]) -> list[Part] | None:
    """Return the shortest edit (Myers 1986, "An O(ND) Difference Algorithm"), or None beyond MOST_EDITS."""
    numbers: dict[str, int] = {}
    mine = [numbers.setdefault(token, len(numbers)) for token in old]
    theirs = [numbers.setdefault(token, len(numbers)) for token in new]
    width, height = len(mine), len(theirs)
    most = min(width + height, MOST_EDITS)
    # By diagonal, from -most - 1: the furthest position reached with this number of edits.
    zero = most + 1
    furthest = [0] * (2 * most + 3)
    history: list[list[int]] = []
    for edits in range(most + 1):
        # Kept for the way back: the diagonals next to those of this round.
        history.append(furthest[zero - edits - 1 : zero + edits + 2])
        for at in range(zero - edits, zero + edits + 1, 2):
            before, after = furthest[at - 1], furthest[at + 1]
            x = after if at == zero - edits or (at != zero + edits and before < after) else before + 1
            y = x - at + zero
            while x < width and y < height and mine[x] == theirs[y]:
                x += 1
                y += 1
            furthest[at] = x
            if x >= width and y >= height:
                return _walk_back(history, old, new)
    return None


def _walk_back(history: list[list[int]], old: Sequence[str], new: Sequence[str]) -> list[Part]:
    x, y = len(old), len(new)
    parts: list[Part] = []
    for edits in range(len(history) - 1, -1, -1):
        # The slice of this round begins at the diagonal -edits - 1.
        furthest, diagonal = history[edits], x - y
        at = diagonal + edits + 1
        down = diagonal == -edits or (diagonal != edits and furthest[at - 1] < furthest[at + 1])
        before = diagonal + 1 if down else diagonal - 1
        from_x = furthest[before + edits + 1] if edits else 0
        from_y = from_x - before if edits else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            parts.append(Part("same", old[x]))
        if edits:
            parts.append(Part("new", new[from_y]) if down else Part("removed", old[from_x]))
            x, y = from_x, from_y
    return parts[::-1]


def _join(parts: Sequence[Part]) -> list[Part]:
    """Merge parts of one kind, removed before added.

    White space between two changes belongs to the change, so that a rewritten sentence is one change.
    """
    merged = [Part(kind, "".join(part.text for part in run)) for kind, run in groupby(parts, lambda part: part.kind)]
    merged = [part for part in merged if part.text]
    joined: list[Part] = []
    removed = new = ""
    for index, part in enumerate(merged):
        is_gap = part.kind == "same" and part.text.isspace() and 0 < index < len(merged) - 1
        if part.kind == "same" and not is_gap:
            joined += _change(removed, new)
            removed = new = ""
            joined.append(part)
            continue
        removed += part.text if part.kind != "new" else ""
        new += part.text if part.kind != "removed" else ""
    return joined + _change(removed, new)


def _change(removed: str, new: str) -> list[Part]:
    return [Part(kind, text) for kind, text in (("removed", removed), ("new", new)) if text]  # type: ignore[arg-type]
