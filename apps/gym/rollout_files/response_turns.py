"""Split the output of a Responses object into turns, the reverse of `assemble_response`."""

from collections.abc import Iterator
from typing import Any, Literal

from apps.gym.loop.agent_loop import SAMPLING_KEYS
from apps.gym.traces.events import (
    EnvironmentTurn,
    ModelCall,
    ToolResult,
    TraceUnion,
)
from apps.gym.traces.items import Item, ToolNames, dump_json, function_calls, item_type
from apps.gym.traces.tokens import TokensMissing, capture_tokens, match_usage, pack_tokens, read_shape
from apps.gym.wires.responses_wire import read_responses_usage

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
TURN_ENDS = "_gymweb_turn_ends"
"""Key of an item that ends a turn, for files with several consecutive turns of the model."""
CUTS = {"max_output_tokens": "max_output_tokens", "content_filter": "content_filter"}
"""Stop reason of the attempt by reason of an incomplete response."""

_CONTROL_CHARACTERS = frozenset({*TOKEN_FIELDS, TURN_ENDS})


def read_turns(response: dict[str, Any], params: dict[str, Any], *, seen: int) -> list[TraceUnion]:
    """Return the events of a response. A turn is uninterrupted output of the model; its tokens are on its last item."""
    sampling = {key: params[key] for key in SAMPLING_KEYS if key in params}
    names = ToolNames()
    events: list[TraceUnion] = []
    before = b""
    for group in _groups(response["output"]):
        kind = _speaker(group[0])
        items = [{k: v for k, v in item.items() if v is not None and k not in _CONTROL_CHARACTERS} for item in group]
        if kind == "tool":
            for item in items:
                call_id = str(item.get("call_id") or "")
                events.append(ToolResult(call_id=call_id, name=names.take(call_id) or "", output=_output_text(item)))
        elif kind == "environment":
            events.append(EnvironmentTurn(items=items))
        else:
            names.add(items)
            packed, note, before = _tokens(group[-1], before)
            events.append(
                ModelCall(
                    seen=seen,
                    items=items,
                    model=str(response.get("model") or ""),
                    response_id=str(response.get("id") or ""),
                    finish_reason="tool_calls" if function_calls(items) else "stop",
                    sampling=sampling,
                    tokens=packed,
                    tokens_note=note,
                )
            )
        seen += len(items)
    _close(events, response)
    return events


def _close(events: list[TraceUnion], response: dict[str, Any]) -> None:
    """Attach the usage and the ending of the whole attempt to its last turn."""
    last = next((event for event in reversed(events) if isinstance(event, ModelCall)), None)
    if last is None:
        return
    last.usage = read_responses_usage(response.get("usage"))
    if sum(isinstance(event, ModelCall) for event in events) == 1 and last.tokens is not None:
        # With several turns, the usage may be that of all or of the last.
        shape = read_shape(last.tokens)
        if not match_usage(shape.prompt, shape.generated, last.usage):
            last.tokens, last.tokens_note = None, "usage_differs"
    last.finish_reason = CUTS.get(why_cut(response), last.finish_reason)


def _groups(output: list[Item]) -> Iterator[list[Item]]:
    group: list[Item] = []
    for item in output:
        ended = group and (
            _speaker(group[0]) != _speaker(item) or TOKEN_FIELDS[1] in group[-1] or TURN_ENDS in group[-1]
        )
        if ended:
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _speaker(item: Item) -> Literal["model", "tool", "environment"]:
    kind = item_type(item)
    if kind.endswith("_call_output"):
        return "tool"
    return "environment" if kind == "message" and item.get("role") != "assistant" else "model"


def _output_text(item: Item) -> str:
    output = item.get("output", "")
    return output if isinstance(output, str) else dump_json(output)


def _tokens(item: Item, before: bytes) -> tuple[bytes | None, str, bytes]:
    """Return the packed tokens of the turn, the reason for missing ones, and the ids before the next turn."""
    given = [item.get(name) for name in TOKEN_FIELDS]
    if all(value is None for value in given):
        return None, "", before
    if not all(isinstance(value, list) for value in given):
        return None, "incomplete", before
    try:
        capture = capture_tokens(*(value for value in given if isinstance(value, list)))
    except TokensMissing as missing:
        return None, missing.note, before
    return pack_tokens(capture, before=before), "", capture.ids


def why_cut(response: dict[str, Any]) -> str:
    details = response.get("incomplete_details")
    return str(details.get("reason") or "") if isinstance(details, dict) else ""
