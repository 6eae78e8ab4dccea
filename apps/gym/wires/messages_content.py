"""The Messages wire: convert content blocks to items and back, with pure functions."""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import call_item, message_item
from apps.gym.traces.items import (
    UNPARSED,
    Item,
    encode_json,
    finite_float,
    item_type,
    read_json,
    refuse_constant,
    text_of,
)

Block = dict[str, Any]

REDACTED = "redacted_thinking"
"""`format` of a reasoning item whose `encrypted_content` is the data of a `redacted_thinking` block."""

_DATA_URL = re.compile(r"data:(?P<media_type>[^;,]+);base64,(?P<data>.*)", re.DOTALL)
_TEXTS = ("input_text", "output_text", "text")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_WRITTEN_ID = re.compile(r"gymweb(\d{0,4})_")


def write_call_id(own: str, earlier: int = 0) -> str:
    """Return a call id that the API accepts: of letters, digits, `_` and `-`. `read_call_id` returns the given id.

    `earlier` counts the calls before it with the same id, because the API accepts no id twice.
    """
    if not earlier and _CALL_ID.fullmatch(own) and not _WRITTEN_ID.match(own):
        return own
    coded = base64.urlsafe_b64encode(own.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    return f"gymweb{earlier or ''}_{coded}"


def count_earlier(written: str) -> int:
    """Return how many calls with the same id were before the one that got this id from `write_call_id`."""
    found = _WRITTEN_ID.match(written)
    return int(found[1] or 0) if found else 0


def read_call_id(written: str) -> str:
    """Return the id from which `write_call_id` made this one."""
    found = _WRITTEN_ID.match(written)
    if found is None:
        return written
    coded = written[found.end() :]
    try:
        own = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return written
    return own if write_call_id(own, count_earlier(written)) == written else written


# ── blocks → items ───────────────────────────────────────────────────────────────────────────────────────────────────


def assistant_items(blocks: Iterable[Block], name: object, *, dropped: list[str] | None = None) -> list[Item]:
    """Return the items of one turn. `name` is part of their ids. Adjacent texts are parts of one message.

    The `input` of a call may also be JSON text, which becomes its arguments character by character. Types of blocks
    that become no item are appended to `dropped`.
    """
    items: list[Item] = []
    for number, block in enumerate(blocks):
        here = f"{name}_{number}"
        match block.get("type"):
            case "text":
                if not block.get("text"):
                    continue
                part = {"type": "output_text", "text": _text(block, "text"), "annotations": []}
                if items and items[-1]["type"] == "message":
                    items[-1]["content"].append(part)
                else:
                    items.append(message_item(here, [part]))
            case "thinking":
                thought, signature = _text(block, "thinking"), _text(block, "signature")
                summary = [{"type": "summary_text", "text": thought}] if thought else []
                items.append({"type": "reasoning", "id": f"rs_{here}", "summary": summary, "signature": signature})
            case "redacted_thinking":
                data = {"encrypted_content": _text(block, "data"), "format": REDACTED}
                items.append({"type": "reasoning", "id": f"rs_{here}", "summary": [], **data})
            case "tool_use":
                call_id, arguments = read_call_id(_text(block, "id")), write_arguments(block.get("input"))
                tool = _text(block, "name")
                items.append(call_item(name, number, call_id=call_id, tool=tool, arguments=arguments))
            case unknown if dropped is not None:
                dropped.append(str(unknown))
    return items


def input_content(blocks: Iterable[Block], *, dropped: list[str]) -> str | list[dict[str, Any]]:
    """Return blocks of a user, the system or a tool as the content of an item: a single text as a string.

    Types of blocks without a part are appended to `dropped`.
    """
    parts: list[dict[str, Any]] = []
    for block in blocks:
        part = _input_part(block)
        if part is None:
            dropped.append(str(block.get("type")))
        else:
            parts.append(part)
    if not parts:
        return ""
    is_text = len(parts) == 1 and parts[0]["type"] == "input_text"
    return str(parts[0]["text"]) if is_text else parts


def write_arguments(given: Any) -> str:
    """Return the arguments of a call as JSON text. Text is returned unchanged, except that UNPARSED is unwrapped."""
    if isinstance(given, str):
        if UNPARSED not in given:
            return given
        given = read_arguments(given)
    if isinstance(given, dict) and given.keys() == {UNPARSED}:
        return str(given[UNPARSED])
    return encode_json(given or {}).decode()


def _input_part(block: Block) -> dict[str, Any] | None:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "input_text", "text": _text(block, "text")}
    if not isinstance(source, dict) or kind not in ("image", "document"):
        return None
    is_image = kind == "image"
    data = f"data:{source.get('media_type')};base64,{source.get('data')}"
    titled = {"filename": block["title"]} if not is_image and block.get("title") else {}
    given: dict[str, Any]
    match source.get("type"):
        case "base64":
            given = {"image_url": data} if is_image else {"file_data": data}
        case "url":
            given = {"image_url" if is_image else "file_url": source.get("url")}
        case "file":
            given = {"file_id": source.get("file_id")}
        case "text" if not is_image:
            return {"type": "input_text", "text": _text(source, "data")}
        case _:
            return None
    return {"type": "input_image" if is_image else "input_file", **given, **titled}


def _text(block: Block, key: str) -> str:
    value = block.get(key)
    return value if isinstance(value, str) else ""


# ── items → blocks ───────────────────────────────────────────────────────────────────────────────────────────────────


def assistant_blocks(items: Iterable[Item], *, thinking: bool = True, unsigned: bool = False) -> list[Block]:
    """Return the blocks of one turn. Empty texts are left out.

    Without `thinking`, reasoning is left out. Reasoning that did not come over this wire has no signature and is left
    out too, because endpoints reject it, unless `unsigned`. Raises PolicyError for items without a block.
    """
    blocks: list[Block] = []
    ids: Counter[str] = Counter()
    for item in items:
        match item_type(item):
            case "reasoning":
                blocks += _thinking_blocks(item, unsigned=unsigned) if thinking else []
            case "function_call":
                own = str(item.get("call_id") or item.get("id") or "")
                call_id = write_call_id(own, ids[own])
                ids[own] += 1
                given = read_arguments(item.get("arguments"))
                blocks.append({"type": "tool_use", "id": call_id, "name": item.get("name", ""), "input": given})
            case _:
                blocks += content_blocks(item.get("content"))
    return blocks


def content_blocks(content: Any) -> list[Block]:
    """Return the content of an item as blocks, without empty texts. Raises PolicyError for a part without a block."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = content if isinstance(content, list) else [content] if content else []
    return [block for part in parts if (block := _input_block(part)) != {"type": "text", "text": ""}]


def plain_content(blocks: list[Block]) -> str | list[Block]:
    """Return a single text as a string, other blocks unchanged."""
    if not blocks:
        return ""
    return str(blocks[0]["text"]) if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def read_arguments(given: Any) -> dict[str, Any]:
    """Return the arguments of a call as an object; an empty text means none.

    Other text is kept under UNPARSED. Integers of any size stay exact.
    """
    if isinstance(given, dict):
        return given
    text = given if isinstance(given, str) else ""
    if not text.strip():
        return {}
    try:
        read = json.loads(text, parse_constant=refuse_constant, parse_float=finite_float)
    except (ValueError, RecursionError):
        read = None
    # Lone surrogates cannot be sent.
    return read if isinstance(read, dict) and read_json(text) is not None else {UNPARSED: text}


def _thinking_blocks(item: Item, *, unsigned: bool) -> list[Block]:
    if item.get("format") == REDACTED:
        return [{"type": "redacted_thinking", "data": item.get("encrypted_content", "")}]
    thought, signature = text_of(item), item.get("signature")
    if signature is None and not (unsigned and thought):
        return []
    return [{"type": "thinking", "thinking": thought, "signature": signature or ""}]


def _input_block(part: Any) -> Block:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXTS or kind == "refusal":
        return {"type": "text", "text": part.get("refusal" if kind == "refusal" else "text") or ""}
    if kind == "input_image":
        return {"type": "image", "source": _source(part, "image_url", "image_url")}
    if kind == "input_file":
        title = {"title": part["filename"]} if part.get("filename") else {}
        return {"type": "document", "source": _source(part, "file_data", "file_url"), **title}
    raise PolicyError(f"Content of type {kind!r} cannot be sent over the Messages wire.").permanent()


def _source(part: dict[str, Any], data_key: str, url_key: str) -> dict[str, Any]:
    if found := _DATA_URL.fullmatch(str(part.get(data_key))):
        return {"type": "base64", **found.groupdict()}
    if part.get(url_key):
        return {"type": "url", "url": part[url_key]}
    if part.get("file_id"):
        return {"type": "file", "file_id": part["file_id"]}
    raise PolicyError(f"{part['type']} without data, URL or file id cannot be sent over the Messages wire.").permanent()
