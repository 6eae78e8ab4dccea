"""Digests of conversation items that are equal if two items mean the same.

Clients send the same item in different forms. A single text block equals a plain string, `cache_control`, ids and
statuses are ignored, arguments are compared as parsed JSON, and `developer` equals `system`. Reasoning and empty texts
of the model have no digest, because many clients do not send them back.
"""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from apps.gym.traces.courses import canonical_arguments
from apps.gym.traces.items import Item, call_arguments, inner_values, item_type, text_of

_IGNORED_KEYS = {"id", "status", "cache_control"}
SHORTEST_TEXT = 4
"""Shorter bare texts are no evidence that a turn was written by a call."""
_NOT_WORDS = re.compile(r"[\W_]+")
_TEXT_PARTS = {"input_text", "output_text", "text"}
_START = b"\0" * 16


class Prefixes(NamedTuple):
    """The hashes of all prefixes of a conversation. Its opening is the system messages at its start.

    `hashes[n]` covers the first `n` items after the opening that have a digest; `ends[n]` is the position after them
    among all items. `digests` has the digest of each item that `hashes` covers.
    """

    opening: bytes
    hashes: list[bytes]
    ends: list[int]
    digests: list[bytes]


def has_digest(item: Item) -> bool:
    """Return False for an item that clients may leave out: reasoning, and empty texts of the model."""
    is_reply = item.get("role") == "assistant" and item_type(item) == "message"
    return bool(_content(item.get("content"))) if is_reply else item_type(item) != "reasoning"


def item_digest(item: Item) -> bytes | None:
    """Return 16 bytes, or None for an item that clients may leave out."""
    kind = item_type(item)
    value: list[Any]
    if not has_digest(item):
        return None
    if kind == "message":
        value = [kind, _role(item), item.get("name"), _content(item.get("content"))]
    elif kind == "function_call":
        value = [kind, item.get("call_id"), item.get("name"), canonical_arguments(item.get("arguments") or "{}")]
    elif kind == "function_call_output":
        value = [kind, item.get("call_id"), _content(item.get("output"))]
    else:
        value = [kind, _without_ignored(item)]
    return digest_of(value)


def hash_prefixes(items: Sequence[Item]) -> Prefixes:
    """Return the hashes of every prefix, in one pass over the items."""
    opening, start = _START, 0
    for item in items:
        if item_type(item) != "message" or _role(item) != "system":
            break
        opening = chain(opening, item_digest(item) or _START)
        start += 1
    hashes, ends, digests = [_START], [start], list[bytes]()
    for place in range(start, len(items)):
        digest = item_digest(items[place])
        if digest is not None:
            digests.append(digest)
            hashes.append(chain(hashes[-1], digest))
            ends.append(place + 1)
    return Prefixes(opening, hashes, ends, digests)


def chain(before: bytes, digest: bytes) -> bytes:
    """Return the hash of a conversation with one more item."""
    return blake2b(before + digest, digest_size=16).digest()


def digest_of(value: Any) -> bytes:
    """Return the digest of a JSON value. The order of keys does not matter."""
    return blake2b(_dump(value), digest_size=16).digest()


def bare_text(item: Item) -> str:
    """Return the letters and digits of a text, or of the arguments of a call, in lower case.

    Of a call, only the values, because clients write the names of arguments in different ways, unless they are short.
    """
    text = text_of(item)
    if item_type(item) == "function_call":
        text = "".join(map(str, inner_values(call_arguments(item))))
        if len(_NOT_WORDS.sub("", text)) < SHORTEST_TEXT:
            text = str(item.get("arguments") or "")
    return _NOT_WORDS.sub("", text).casefold()


def message_texts(item: Item) -> Iterator[str]:
    """Yield the text blocks of a message."""
    if item_type(item) == "message":
        yield from (part[1] for part in _content(item.get("content")) if part[0] == "text")


def _role(item: Item) -> str:
    role = str(item.get("role", ""))
    return "system" if role == "developer" else role


def _content(content: Any) -> list[Any]:
    """Return the parts as [kind, value]; empty texts are left out."""
    parts = content if isinstance(content, list) else [content]
    return [part for part in map(_part, parts) if part[1] not in ("", None)]


def _part(part: Any) -> list[Any]:
    if not isinstance(part, dict):
        return ["text" if isinstance(part, str) else "value", part]
    if part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
        return ["text", part["text"]]
    return ["part", _without_ignored(part)]


def _without_ignored(value: dict[str, Any]) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if key not in _IGNORED_KEYS}


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits, lone surrogates
        return json.dumps(value, sort_keys=True, default=str).encode()
