"""Read the fenced code blocks of a Markdown text by the rules of CommonMark."""

import re
from collections.abc import Iterable

import msgspec

_LINE_END = re.compile(r"\r\n|\n|\r")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?: +|$)")
_OPENING = re.compile(r"(`{3,}|~{3,})(.*)", re.DOTALL)
_LANGUAGE = re.compile(r"[{.\s]*([\w+#-]+)")
_MOST_BEFORE = 3
"""Maximum spaces before a fence, counted from the start of its list item. With more, the line is text."""

_DEEPEST = 50
"""Maximum nesting of list items."""


class Block(msgspec.Struct, frozen=True):
    """A fenced block. `language` is the first word after the opening marks in lower case, or empty."""

    language: str
    content: str


def find_block(texts: Iterable[str], languages: frozenset[str]) -> str | None:
    """Return the last block in one of the languages, else the last block without a language, or None.

    Each text is read separately: an unclosed block does not continue in the next text.
    """
    blocks = [block for text in texts for block in read_blocks(text)]
    tagged = [block for block in blocks if block.language in languages]
    found = tagged or [block for block in blocks if not block.language]
    return found[-1].content if found else None


def read_blocks(text: str) -> list[Block]:
    """Return all blocks in order.

    A block ends with a line that contains only its own marks, at least as many; in a list item, indentation counts from
    the item. This is more lenient than CommonMark in two ways. A line that is indented less than the marks or the list
    item does not end a block and keeps its place. An unclosed block ends at marks at the end of a line.
    """
    lines = _LINE_END.split(text)
    blocks: list[Block] = []
    items: list[int] = []
    at = 0
    while at < len(lines):
        place, rest = _enter(lines[at], items)
        at += 1
        opened = _OPENING.fullmatch(rest)
        if opened is None or place - (items[-1] if items else 0) > _MOST_BEFORE:
            continue
        marks, info = opened.groups()
        if marks[0] == "`" and "`" in info:
            continue  # inline code
        content, at = _read_content(lines, at, marks, place, items[-1] if items else 0)
        named = _LANGUAGE.match(info)
        blocks.append(Block(named[1].lower() if named else "", "\n".join(content)))
    return blocks


def _enter(line: str, items: list[int]) -> tuple[int, str]:
    """Return the column where the line's text begins, and the text.

    `items` has the column of the text of each open list item, and is updated.
    """
    rest = line.lstrip(" \t")
    if not rest:
        return 0, ""
    place = _indentation(line)
    while items and place < items[-1]:
        items.pop()
    while (
        len(items) < _DEEPEST and place - (items[-1] if items else 0) <= _MOST_BEFORE and (marker := _ITEM.match(rest))
    ):
        spaces = len(marker[0]) - len(marker[0].rstrip(" "))
        # Of many spaces, only one belongs to the marker.
        width = len(marker[0]) if 0 < spaces <= _MOST_BEFORE + 1 else len(marker[0]) - spaces + 1
        items.append(place + width)
        place += len(marker[0])
        rest = rest[len(marker[0]) :]
    return place, rest


def _read_content(lines: list[str], at: int, marks: str, place: int, item: int) -> tuple[list[str], int]:
    """Return the lines of a block without its indentation, and the index of the line after it."""
    closing = re.compile(f"{re.escape(marks[0])}{{{len(marks)},}}[ \t]*")
    for end in range(at, len(lines)):
        line = lines[end]
        if _indentation(line) - item <= _MOST_BEFORE and closing.fullmatch(line.lstrip(" \t")):
            return _unindent(lines[at:end], place), end + 1
    for end in range(at, len(lines)):
        line = lines[end].rstrip(" \t")
        if line.endswith(marks):
            return _unindent([*lines[at:end], line.rstrip(marks[0])], place), end + 1
    return _unindent(lines[at:], place), len(lines)


def _indentation(line: str) -> int:
    before = line[: len(line) - len(line.lstrip(" \t"))]
    return len(before.expandtabs(4))


def _unindent(lines: list[str], most: int) -> list[str]:
    """Remove the same indentation from all lines, so that nesting is kept."""
    least = min((_indentation(line) for line in lines if line.strip()), default=0)
    width = min(most, least)
    if not width:
        return lines
    return [" " * max(0, _indentation(line) - width) + line.lstrip(" \t") for line in lines]
