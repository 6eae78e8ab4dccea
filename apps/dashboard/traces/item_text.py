"""Prepare one conversation item for reading. Unknown kinds are shown as JSON, never dropped."""

from dataclasses import dataclass
from typing import Any

import orjson

from apps.gym.traces.items import item_type, text_of

_ROLES = {"user": "User", "assistant": "Assistant", "system": "System", "developer": "Developer"}
_TEXT_PARTS = {"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"}


@dataclass(frozen=True)
class ItemView:
    """Either `text` or `json` (already indented) has the body."""

    kind: str
    label: str
    text: str = ""
    json: str | None = None
    name: str = ""
    note: str = ""


def indent_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()


def _parsed(text: str) -> Any:
    """Return the value of JSON text, or the text itself if it is invalid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _readable(item: dict[str, Any]) -> bool:
    """Return True if `text_of` has the whole message. Messages with images or unknown parts are shown as JSON."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return all(isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS for part in parts)


def _view_message(item: dict[str, Any]) -> ItemView:
    role = str(item.get("role") or "unknown")
    body = {"text": text_of(item)} if _readable(item) else {"json": indent_json(item.get("content"))}
    return ItemView(kind=role, label=_ROLES.get(role, role), **body)


def _view_reasoning(item: dict[str, Any]) -> ItemView:
    hidden = "The provider keeps this reasoning encrypted." if item.get("encrypted_content") else ""
    return ItemView(kind="reasoning", label="Reasoning", text=text_of(item) or hidden)


def _view_call(item: dict[str, Any]) -> ItemView:
    arguments = item.get("arguments", "")
    value = _parsed(arguments) if isinstance(arguments, str) else arguments
    named = {"kind": "function_call", "label": "Tool call", "name": str(item.get("name") or "")}
    if isinstance(value, str):
        return ItemView(**named, text=value, note="arguments are not JSON")
    return ItemView(**named, json=indent_json(value), note=str(item.get("call_id") or ""))


def _view_output(item: dict[str, Any]) -> ItemView:
    output = item.get("output", "")
    value = _parsed(output) if isinstance(output, str) else output
    named = {"kind": "function_call_output", "label": "Tool result", "note": str(item.get("call_id") or "")}
    if isinstance(value, dict | list):
        return ItemView(**named, json=indent_json(value))
    return ItemView(**named, text=str(output))


_VIEWS = {
    "message": _view_message,
    "reasoning": _view_reasoning,
    "function_call": _view_call,
    "function_call_output": _view_output,
}


def view_item(item: dict[str, Any]) -> ItemView:
    view = _VIEWS.get(item_type(item))
    if view is None:
        return ItemView(kind="other", label=item_type(item), json=indent_json(item))
    return view(item)
