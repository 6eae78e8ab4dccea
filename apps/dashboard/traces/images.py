"""Show images stored in a trace. Remote images, and formats that may run scripts, are not shown."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from apps.dashboard.traces.cards import Image
from apps.gym.traces.events import ModelCall, ToolResult, TraceUnion
from apps.gym.traces.items import Item

MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
"""Image formats by their first bytes. SVG is excluded because it may contain scripts."""
_DATA = re.compile(r"data:(image/[a-z]+);base64,", re.ASCII)


def find_image(value: object, seq: int, part: str) -> Image | None:
    """Return the image in a part of a message, or None for other parts and remote images."""
    address = _address(value)
    match = _DATA.match(address)
    if match is None or match[1] not in MAGIC:
        return None
    return Image(seq=seq, part=part, kind=match[1], size=(len(address) - match.end()) * 3 // 4, address=address)


def read_image(event: TraceUnion, part: str) -> tuple[str, bytes] | None:
    """Return (content type, bytes), or None if the part is not an image or the bytes do not match the type."""
    address = _address(dict(_parts(event)).get(part))
    match = _DATA.match(address)
    if match is None or match[1] not in MAGIC:
        return None
    try:
        content = base64.b64decode(address[match.end() :], validate=True)
    except (binascii.Error, ValueError):
        return None
    return (match[1], content) if content.startswith(MAGIC[match[1]]) else None


def _address(value: object) -> str:
    if not isinstance(value, dict) or value.get("type") not in ("input_image", "image_url"):
        return ""
    address = value.get("image_url")
    address = address.get("url") if isinstance(address, dict) else address
    return address if isinstance(address, str) else ""


def _parts(event: TraceUnion) -> Iterator[tuple[str, Any]]:
    if isinstance(event, ToolResult):
        return
    added = event.items_in if isinstance(event, ModelCall) else []
    for prefix, items in (("", event.new_items()), ("in", added)):
        for place, item in enumerate(items):
            for sub, value in enumerate(parts_of(item)):
                yield f"{prefix}{place}.{sub}", value


def parts_of(item: Item) -> list[Any]:
    """Return the content parts of a message or an output."""
    content = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
    return content if isinstance(content, list) else []
