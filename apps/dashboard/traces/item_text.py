"""Prepare a conversation item for display. Unknown kinds are shown as JSON."""

from typing import Any

import orjson

from apps.dashboard.traces.images import find_image, parts_of
from apps.gym.traces.items import item_type, text_of

_ROLES = {"user": "User", "assistant": "Assistant", "system": "System", "developer": "Developer"}
_TEXT_PARTS = {"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"}


def indent_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()


def _parsed(value: Any) -> Any:
    """Return parsed JSON. Other values and invalid JSON are returned unchanged."""
    try:
        return orjson.loads(value) if isinstance(value, str) else value
    except orjson.JSONDecodeError:
        return value


def _readable(content: Any) -> bool:
    """Return True if the text and the images are the whole message. Messages with other parts are shown as JSON."""
    parts = content if isinstance(content, list) else []
    return all(
        isinstance(part, dict) and (part.get("type", "text") in _TEXT_PARTS or find_image(part, 0, ""))
        for part in parts
    )


def view_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return kind, label, name and note of the item, its body as either `text` or indented `json`, and its `images`."""
    kind, call_id = item_type(item), str(item.get("call_id") or "")
    match kind:
        case "message":
            role, content = str(item.get("role") or "unknown"), item.get("content")
            body = {"text": text_of(item)} if _readable(content) else {"json": indent_json(content)}
            images = [image for part in parts_of(item) if (image := find_image(part, 0, ""))] if "text" in body else []
            return {"kind": role, "label": _ROLES.get(role, role), "images": images, **body}
        case "reasoning":
            hidden = (
                "The provider keeps this reasoning encrypted."
                if item.get("encrypted_content") or item.get("signature")
                else ""
            )
            return {"kind": kind, "label": "Reasoning", "text": text_of(item) or hidden}
        case "function_call":
            value = _parsed(item.get("arguments", ""))
            body = {"json": indent_json(value), "note": call_id}
            if isinstance(value, str):
                body = {"text": value, "note": "arguments are not JSON"}
            return {"kind": kind, "label": "Tool call", "name": str(item.get("name") or ""), **body}
        case "function_call_output":
            output = item.get("output", "")
            value = _parsed(output)
            body = {"json": indent_json(value)} if isinstance(value, dict | list) else {"text": str(output)}
            return {"kind": kind, "label": "Tool result", "note": call_id, **body}
    return {"kind": "other", "label": kind, "json": indent_json(item)}
