"""The shape of a conversation: what may decide how a template renders it, without its texts."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

import orjson

_LONGEST_REPEAT = 4
"""Messages of a repeated sequence, for example a call with three results."""


def find_shape(messages: list[dict[str, Any]], tools: list[Any] | None) -> Hashable:
    """Return roles, kinds of contents, number of calls, kinds of argument values, and features of tool schemas.

    Sequences of messages that repeat more than twice count as two.
    """
    made: list[Hashable] = []
    for message in messages:
        made.append(_message_code(message))
        for size in range(1, _LONGEST_REPEAT + 1):
            if len(made) >= 3 * size and made[-size:] == made[-2 * size : -size] == made[-3 * size : -2 * size]:
                del made[-size:]
                break
    return tuple(made), None if tools is None else _tool_features(orjson.dumps(tools))


def _message_code(message: dict[str, Any]) -> Hashable:
    content, calls = message.get("content"), message.get("tool_calls") or ()
    text: Hashable = tuple(part.get("type") for part in content) if isinstance(content, list) else content
    if isinstance(content, str):
        text = ("</think>" in content, bool(content.strip()))
    values: set[str] = set()
    for call in calls:
        _add_features(call["function"].get("arguments"), values)
    return message.get("role"), text, bool(message.get("reasoning_content")), min(len(calls), 3), frozenset(values)


@lru_cache(maxsize=256)
def _tool_features(tools: bytes) -> Hashable:
    """Return the keywords, types and nulls of all schemas. Cached, because thousands of rows have the same tools."""
    found: set[str] = set()
    parsed = orjson.loads(tools)
    _add_features(parsed, found, keywords=True)
    return min(len(parsed), 2), frozenset(found)


def _add_features(value: Any, found: set[str], place: str = "", *, keywords: bool = False) -> None:
    """Add the kinds of a JSON value and of all values in it; with `keywords`, also the keys of schemas and types."""
    word = f"{place}={value}" if keywords and place == "type" else f"{place}{type(value).__name__}"
    if isinstance(value, int | float) and not keywords:
        word += f"{'-' * (value < 0)}{'.' * (value % 1 != 0)}"
    # An empty value is a kind of its own, and so are 0 and false.
    found.add(word if value or (keywords and isinstance(value, int | float)) else f"{word}?")
    if isinstance(value, dict):
        for key, item in value.items():
            inner = key if keywords and place != "properties" else ">"
            _add_features(item, found, inner, keywords=keywords)
    elif isinstance(value, list):
        for item in value:
            _add_features(item, found, ">", keywords=keywords)
