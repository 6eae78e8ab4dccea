"""Serve the Responses wire: convert a request to an ask, and a reply to a response or its events."""

import time
from typing import Any

import orjson

from apps.gym.serving.completions import BadCompletion, Completion, list_of_objects, missing_text, read_tools
from apps.gym.traces.events import ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import Item, TaskRow, input_items, message
from apps.gym.traces.responses import assemble_response
from apps.gym.wires.protocol import Reply

_NOT_SAMPLING = frozenset(
    {"input", "model", "stream", "tools", "instructions", "background", "store", "user", "include"}
)
_NEEDED = {"function_call": ("call_id", "name"), "function_call_output": ("call_id",), "item_reference": ("id",)}
"""Fields of items that must be text."""
_NEVER = {
    "previous_response_id": "responses are not stored. Send the whole conversation",
    "conversation": "conversations are not stored. Send the whole conversation",
    "prompt": "prompt templates are not supported",
}


def read_response_request(body: dict[str, Any]) -> Completion:
    """Convert a request. Raises BadCompletion."""
    given = {key: value for key, value in body.items() if value is not None}
    for name, why in _NEVER.items():
        if name in given:
            raise BadCompletion(why, name)
    sampling = {key: value for key, value in given.items() if key not in _NOT_SAMPLING}
    return Completion(
        items=_items(given),
        tools=read_tools(given.get("tools", []), "name"),
        sampling=sampling,
        stream=given.get("stream") is True,
    )


def _items(given: dict[str, Any]) -> list[Item]:
    asked = given.get("input")
    if not isinstance(asked, str | list) or not asked:
        raise BadCompletion("input is missing: text, or a list of items", "input")
    for place, item in enumerate(list_of_objects(asked, "input") if isinstance(asked, list) else []):
        kind = item.get("type")
        if not isinstance(kind, str) and not isinstance(item.get("role"), str):
            raise BadCompletion(f"input[{place}] must have a type or a role", f"input[{place}]")
        for name in _NEEDED.get(kind, ()) if isinstance(kind, str) else ():
            if not isinstance(item.get(name), str):
                raise missing_text(f"input[{place}].{name}")
    items = input_items({"responses_create_params": {"input": asked}})
    instructions = given.get("instructions", "")
    if not isinstance(instructions, str):
        raise missing_text("instructions")
    return [message("system", instructions), *items] if instructions else items


def write_response(reply: Reply, body: dict[str, Any], *, name: str, model: str) -> dict[str, Any]:
    """Return the reply to a request as a Responses object. `name` is its id."""
    params = {key: body[key] for key in ("tools", "tool_choice", "parallel_tool_calls") if body.get(key) is not None}
    call = ModelCall(seen=0, items=_with_tokens(reply), model=reply.model, response_id=name, usage=reply.usage)
    events: list[TraceUnion] = [Prompt(items=[]), call]
    row: TaskRow = {"responses_create_params": {"input": [], **params}}
    reason = reply.finish_reason
    response = assemble_response(events, row, stop_reason="max_output_tokens" if reason == "context_length" else reason)
    return {**response, "model": model, "created_at": time.time()}


def _with_tokens(reply: Reply) -> list[Item]:
    if reply.tokens is None or not reply.items:
        return reply.items
    return [*reply.items[:-1], reply.items[-1] | reply.tokens.fields()]


def write_events(response: dict[str, Any], *, start: int = 0) -> bytes:
    """Return server-sent events, numbered from `start`: created, each item with its text, completed (or incomplete)."""
    written: list[bytes] = []

    def tell(kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": start + len(written), **fields}
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
    """Return an item at its start, without content."""
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
