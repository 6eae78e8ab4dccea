"""Show images of items: stored ones and data URLs. Other addresses, and formats that may run scripts, are not shown."""

from collections.abc import Iterator
from typing import Any

from apps.dashboard.traces.cards import Image
from apps.gym.image_data import DATA_URL, SCHEME, ImageRefused, read_data_url
from apps.gym.traces.events import ModelCall, TraceUnion
from apps.gym.traces.items import Item


def find_image(value: object, seq: int, part: str) -> Image | None:
    """Return the image in a part of a message, or None for other parts and remote images."""
    address = _address(value)
    if address.startswith(SCHEME):
        return Image(seq=seq, part=part, kind="", size=0, address=address, sha256=address.removeprefix(SCHEME))
    match = DATA_URL.fullmatch(address)
    if match is None:
        return None
    return Image(seq=seq, part=part, kind=match["kind"], size=len(match["data"]) * 3 // 4, address=address)


def read_image(event: TraceUnion, part: str) -> tuple[str, bytes] | None:
    """Return (content type, bytes), or None if the part is not an image or the bytes do not match the type."""
    try:
        image = read_data_url(_address(dict(_parts(event)).get(part)))
    except ImageRefused:
        return None
    return image.kind, image.content


def _address(value: object) -> str:
    if not isinstance(value, dict) or value.get("type") not in ("input_image", "image_url"):
        return ""
    address = value.get("image_url")
    address = address.get("url") if isinstance(address, dict) else address
    return address if isinstance(address, str) else ""


def _parts(event: TraceUnion) -> Iterator[tuple[str, Any]]:
    added = event.items_in if isinstance(event, ModelCall) else []
    for prefix, items in (("", event.new_items()), ("in", added)):
        for place, item in enumerate(items):
            for sub, value in enumerate(parts_of(item)):
                yield f"{prefix}{place}.{sub}", value


def parts_of(item: Item) -> list[Any]:
    """Return the content parts of a message or an output."""
    content = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
    return content if isinstance(content, list) else []
