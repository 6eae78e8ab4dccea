"""Traces in the shapes that the exporters must cope with, built from events as the agent loop yields them."""

import json
from typing import Any

import msgspec

from apps.gym.traces.events import ModelCall, Prompt, SessionOpened, ToolResult, TraceUnion, Verification
from apps.gym.traces.items import Item, Tool, message
from apps.gym.traces.tokens import capture_tokens, pack_tokens

WEATHER_TOOL: Tool = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather",
    "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "title": None}}},
}


def row(**fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "How warm is it in Paris?"}], "tools": None},
        "expected_answer": "22",
        **fields,
    }


def call(arguments: str = '{"city": "Paris"}', call_id: str = "call_1", name: str = "get_weather") -> Item:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": arguments}


def thought(text: str) -> Item:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def said(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def turn(*items: Item, finish_reason: str = "stop") -> ModelCall:
    return ModelCall(seen=0, items=list(items), model="policy-1", response_id="resp_9", finish_reason=finish_reason)


def trace(*events: TraceUnion, prompt: list[Item] | None = None, reward: float | None = 1.0) -> list[TraceUnion]:
    """Session, prompt, the given events, verification."""
    start = [message("user", "How warm is it in Paris?")] if prompt is None else prompt
    return [
        SessionOpened(environment="weather", tools=[WEATHER_TOOL]),
        Prompt(items=start),
        *events,
        Verification(reward=reward, stop_reason="answered"),
    ]


def weather_trace(answer: str = "It is 22 °C.", *, call_id: str = "call_1") -> list[TraceUnion]:
    """One call, one answer."""
    return trace(
        turn(thought("I should look."), call(call_id=call_id), finish_reason="tool_calls"),
        ToolResult(call_id=call_id, name="get_weather", output='{"temp": 22}'),
        turn(thought("The tool says 22."), said(answer)),
    )


def nulls(value: Any, path: str = "") -> list[str]:
    """Where a JSON value holds null."""
    if value is None:
        return [path]
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in nulls(inner, f"{path}/{key}")]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in nulls(inner, f"{path}/{index}")]
    return []


def key_structure(value: Any) -> Any:
    """The keys of a JSON value without its scalars, for comparing shapes."""
    if isinstance(value, dict):
        return {key: key_structure(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [key_structure(inner) for inner in value]
    return type(value).__name__


def decode_lines(text: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def with_tokens(events: list[TraceUnion], *captured: tuple[list[int], list[int]] | None) -> list[TraceUnion]:
    """The trace with the tokens of its model calls, `(prompt, generation)` a call, each with a logprob of -0.5."""
    given, before, found = iter(captured), b"", []
    for event in events:
        tokens = next(given) if isinstance(event, ModelCall) else None
        if tokens is not None:
            capture = capture_tokens(*tokens, [-0.5] * len(tokens[1]))
            usage = (
                {**event.usage, "input_tokens": len(tokens[0]), "output_tokens": len(tokens[1])} if event.usage else {}
            )
            packed = pack_tokens(capture, before=before)
            event = msgspec.structs.replace(event, tokens=packed, usage=usage)  # noqa: PLW2901
            before = capture.ids
        found.append(event)
    return found
