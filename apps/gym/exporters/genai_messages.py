"""Conversation items as messages of OpenTelemetry's GenAI conventions: a role, and parts by type."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from apps.gym.traces.items import Item, encode_json, is_by_model, item_type, read_json, text_of

Part = dict[str, Any]
Message = dict[str, Any]

FINISH_REASONS = {"tool_calls": "tool_call", "max_output_tokens": "length"}
_ROLES = {"developer": "system"}


def as_messages(items: Iterable[Item]) -> list[Message]:
    """Return the messages of a conversation. Consecutive items of the model are one message."""
    found: list[Message] = []
    for by_model, run in groupby(items, is_by_model):
        if by_model:
            found.append({"role": "assistant", "parts": [part for item in run for part in _model_parts(item)]})
        else:
            found.extend(_input_message(item) for item in run)
    return found


def reply_message(items: list[Item], finish_reason: str) -> Message:
    """Return a reply of a model as one output message."""
    parts = [part for item in items for part in (_model_parts(item) if is_by_model(item) else [_other(item)])]
    return {"role": "assistant", "parts": parts, "finish_reason": FINISH_REASONS.get(finish_reason, finish_reason)}


def as_text(value: object) -> str:
    """Return a value as text: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else encode_json(value).decode(errors="replace")


def _input_message(item: Item) -> Message:
    kind = item_type(item)
    if kind == "function_call_output":
        response = {"type": "tool_call_response", "id": str(item.get("call_id", "")), "response": item.get("output")}
        return {"role": "tool", "parts": [response]}
    if kind != "message":
        return {"role": "user", "parts": [_other(item)]}
    role = str(item.get("role", "user"))
    return {"role": _ROLES.get(role, role), "parts": _content_parts(item.get("content"))}


def _model_parts(item: Item) -> list[Part]:
    kind = item_type(item)
    if kind == "reasoning":
        text = text_of(item)
        return [{"type": "reasoning", "content": text}] if text else []
    if kind == "function_call":
        arguments = item.get("arguments")
        parsed = read_json(arguments, arguments) if isinstance(arguments, str) else arguments
        call = {"type": "tool_call", "id": str(item.get("call_id", "")), "name": str(item.get("name", ""))}
        return [{**call, "arguments": parsed}]
    return _content_parts(item.get("content"))


def _content_parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    return [_content_part(part) for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _content_part(part: dict[str, Any]) -> Part:
    text = part.get("text") or part.get("refusal")
    if isinstance(text, str):
        return {"type": "text", "content": text}
    url = part.get("image_url")
    if part.get("type") == "input_image" and isinstance(url, str):
        return _image_part(url)
    return _other(part)


def _image_part(url: str) -> Part:
    head, separator, content = url.partition(";base64,")
    if head.startswith("data:") and separator:
        return {"type": "blob", "modality": "image", "mime_type": head.removeprefix("data:"), "content": content}
    return {"type": "uri", "modality": "image", "uri": url}


def _other(item: dict[str, Any]) -> Part:
    """Return a part of an own type, which the conventions allow."""
    return {"type": str(item.get("type") or "unknown"), "content": item}
