"""Find JSON in a reply: the whole reply, its last fenced block, or its last object or list."""

import json
import re
from typing import Any

from apps.gym.code_blocks import read_blocks
from apps.gym.traces.items import refuse_constant

_NONE = object()
_NAMES = frozenset({"json", "jsonc", "json5"})
_MAX_FAILED = 5_000
"""Maximum brackets that start no JSON: each error of the json module counts the lines before it."""

_BRACKET = re.compile(r"[\[{\]}]")
_COMMENT = r"(?:(?://[^\n]*\n|/\*[^*]*\*/)\s*)"
_OTHER_KEY = rf"{_COMMENT}?(?:[\w$-]{{1,60}}|['`“‘][^'`”’\n]{{0,60}}['`”’])\s*(?:=>|:(?!/))"
"""A key as other languages write it, perhaps after a comment. Its object is broken JSON."""
_START = re.compile(
    r'\[\s*(?:["{\[\]\d-]|[tfnNI][a-zA-Z]*\s*(?:[,\]]|\Z)|\Z)'
    rf'|\{{\s*(?:["}}]|\Z|{_OTHER_KEY}|{_COMMENT}")'
    r"|(?<![a-zA-Z])\{\s*[\w$-]{1,60}\s+[\[{]"
)
_CUT = re.compile(r"(?:[-.]|[eE][+-]?|t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?|\\?u[0-9a-fA-F]{0,4})?\Z")
"""The rest of a text that ends within a number, a literal or an escape."""

_BEGUN = re.compile(
    rf'[\[\s]*\{{\s*(?:(?P<json>"[^"]*"\s*:)|"[^"]*"\s*=>|{_OTHER_KEY}|{_COMMENT}"|[\w$-]{{1,60}}\s+[\[{{])'
)
"""An object with a key, or a word in place of one: broken JSON, not prose in brackets."""

_KEY_BEFORE = re.compile(r"""["'”’`]\s{0,20}:\s{0,20}\Z""")


def find_json(text: str, default: Any = None) -> Any:
    """Return the parsed value, or the default without one. NaN and Infinity are not JSON.

    A text that ends inside an object or list has no value, nor has one whose last object is broken JSON. Values inside
    broken JSON, such as `{"a": {"b": 1}, c}` or `"a": {"b": 1}}`, are not found. Brackets in prose, such as
    `[see {"a": 1}`, are skipped.
    """
    stripped = text.strip()
    if (whole := _parse(stripped)) is not _NONE:
        return whole
    found, is_cut = _find_last(stripped)
    if is_cut:
        return default
    blocks = read_blocks(stripped)
    # Last ones first, blocks marked as JSON before others.
    blocks.sort(key=lambda block: block.language in _NAMES)
    for block in reversed(blocks):
        value = _parse(block.content)
        if value is not _NONE:
            return value
        if block.language in _NAMES and block.content.lstrip().startswith(("{", "[")):
            return default
    return default if found is _NONE else found


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return _NONE


def _find_last(text: str) -> tuple[Any, bool]:
    """Return the last object or list, and whether the text ends inside one. Every character is parsed at most once."""
    found, at, failed = _NONE, 0, 0
    span = (0, 0)
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    while (match := _START.search(text, at)) and failed < _MAX_FAILED:
        start, depth = match.start(), 0
        try:
            found, at = decoder.raw_decode(text, start)
            span = (start, at)
            continue
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated string") or _CUT.match(text, error.pos):
                return _NONE, True
            at = max(error.pos, start + 1)
            if begun := _BEGUN.match(text, start):
                found = _NONE if begun["json"] else found
                read = text[start:at]
                depth = max(0, sum(map(read.count, "[{")) - sum(map(read.count, "]}")))
        except (ValueError, RecursionError):
            # The error does not tell how far it read.
            at, depth = start + 1, 1
        failed += 1
        if depth:
            at = _skip_broken(text, at, depth)
            if at < 0:
                return _NONE, False
    return (_NONE if match or _is_part(text, *span) else found), False


def _is_part(text: str, start: int, end: int) -> bool:
    """Return True if a value is part of JSON that lost its first bracket: it is after a key or before a bracket."""
    is_unopened = sum(map(text.count, "]}")) > sum(map(text.count, "[{"))
    return is_unopened and bool(
        text[end:].lstrip()[:1] in ("]", "}") or _KEY_BEFORE.search(text[max(0, start - 50) : start])
    )


def _skip_broken(text: str, at: int, depth: int) -> int:
    """Return the end of broken JSON that has so many open brackets, or -1 without one."""
    for bracket in _BRACKET.finditer(text, at):
        depth += 1 if bracket[0] in "[{" else -1
        if not depth:
            return bracket.end()
    return -1
