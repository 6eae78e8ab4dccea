"""A whole response replayed as the events of a streamed one, for clients that only read streams."""

from typing import Any

import orjson


def write_events(response: dict[str, Any]) -> bytes:
    """Server-sent events: created, every item with its text, completed (or incomplete)."""
    written: list[bytes] = []

    def tell(kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": len(written), **fields}
        written.append(b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n")

    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    tell("response.created", response=begun)
    for place, item in enumerate(response["output"]):
        tell("response.output_item.added", output_index=place, item=_empty(item))
        _tell_content(tell, item, place)
        tell("response.output_item.done", output_index=place, item=item)
    tell("response.incomplete" if response.get("status") == "incomplete" else "response.completed", response=response)
    return b"".join(written)


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it is when it begins."""
    blank: dict[str, Any] = {"content": []} if item.get("type") == "message" else {}
    if item.get("type") == "function_call":
        blank = {"arguments": ""}
    return {**item, **blank, "status": "in_progress"}


def _tell_content(tell: Any, item: dict[str, Any], place: int) -> None:
    at = {"item_id": item.get("id", ""), "output_index": place}
    if item.get("type") == "function_call":
        tell("response.function_call_arguments.delta", **at, delta=item["arguments"])
        tell("response.function_call_arguments.done", **at, name=item.get("name", ""), arguments=item["arguments"])
        return
    parts = item.get("content") if item.get("type") == "message" else []
    for index, part in enumerate(parts if isinstance(parts, list) else []):
        if part.get("type") != "output_text":
            continue
        here = {**at, "content_index": index}
        tell("response.content_part.added", **here, part={**part, "text": ""})
        tell("response.output_text.delta", **here, delta=part["text"], logprobs=[])
        tell("response.output_text.done", **here, text=part["text"], logprobs=[])
        tell("response.content_part.done", **here, part=part)
