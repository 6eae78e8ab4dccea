"""Convert between Chat Completions and Responses items, for serving a policy model."""

from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import chat_items, chat_messages
from apps.gym.traces.items import Item, Tool, flat_tool
from apps.gym.wires.protocol import Reply

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_NOT_SAMPLING = frozenset(
    {"messages", "model", "stream", "stream_options", "tools", "n", "store", "user", "functions", "function_call"}
)
# `name` of a tool's result is also in its call. `cache_control` has no effect on the reply.
_PLAIN_FIELDS = frozenset({"role", "content", "name", "cache_control"})
_KEPT_FIELDS = {
    "tool": _PLAIN_FIELDS | {"tool_call_id"},
    "assistant": {
        *("role", "content", "refusal", "tool_calls", "annotations", "cache_control"),
        *("reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"),
    },
}
_FINISH = {"max_output_tokens": "length", "context_length": "length"}


class BadCompletion(Exception):
    """Raised for a request that cannot be answered. `param` is the place of the problem: `messages[2].role`."""

    def __init__(self, message: str, param: str, *, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.param, self.code = param, code


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A Chat Completions request as Responses items and options. `notes` name the parts that were dropped."""

    items: list[Item]
    tools: list[Tool]
    sampling: dict[str, Any]
    stream: bool = False
    stream_usage: bool = False
    notes: list[str] = []


def read_completion(body: dict[str, Any]) -> Completion:
    """Convert a Chat Completions request. Raise BadCompletion."""
    given = {key: value for key, value in body.items() if value is not None}
    if given.get("n", 1) != 1:
        raise BadCompletion("only one choice per request is supported", "n")
    if "functions" in given or "function_call" in given:
        raise BadCompletion("functions are not supported. Use tools", "functions")
    options = given.get("stream_options")
    messages = list_of_objects(given.get("messages"), "messages")
    return Completion(
        items=_read_messages(messages),
        tools=read_tools(given.get("tools", []), "function.name"),
        sampling=_read_sampling(given),
        stream=given.get("stream") is True,
        stream_usage=isinstance(options, dict) and options.get("include_usage") is True,
        notes=sorted({*_dropped(messages)}),
    )


def _read_messages(messages: list[dict[str, Any]]) -> list[Item]:
    if not messages:
        raise BadCompletion("messages is empty", "messages")
    for place, message in enumerate(messages):
        if str(message.get("role")) not in _ROLES:
            here = f"messages[{place}].role"
            raise BadCompletion(f"{here} must be one of {', '.join(sorted(_ROLES))}", here)
        if message.get("function_call"):
            here = f"messages[{place}].function_call"
            raise BadCompletion(f"{here} is not supported. Use tool_calls", here)
        if message.get("tool_calls") is not None:
            _check_calls(message["tool_calls"], f"messages[{place}].tool_calls")
    try:
        return chat_items(messages)
    except (AttributeError, TypeError, KeyError) as error:
        raise BadCompletion(f"messages cannot be read: {error}", "messages") from None


def _check_calls(calls: object, name: str) -> None:
    """Raise BadCompletion for a call in the history that the model cannot get."""
    for place, call in enumerate(list_of_objects(calls, name)):
        kind, function = call.get("type") or "function", call.get("function")
        if kind != "function":
            here = f"{name}[{place}]"
            raise BadCompletion(f"{here} is a call of type {kind}. Only type function is supported", f"{here}.type")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise missing_text(f"{name}[{place}].function.name")


def _dropped(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a note for each field and part of a message that becomes no item."""
    for message in messages:
        role = message["role"]
        kept = _KEPT_FIELDS.get(role, _PLAIN_FIELDS)
        if not message.keys() <= kept:
            yield from (f"{key} of {role} messages was dropped" for key in message.keys() - kept if message[key])
        parts = message.get("content") if role == "assistant" else None
        for part in parts if isinstance(parts, list) else []:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in ("refusal", "thinking") and not (kind and isinstance(part.get("text"), str)):
                yield f"content of type {kind} of assistant messages was dropped"


def read_tools(given: object, name_field: str) -> list[Tool]:
    """Return the tools in flat form. Raise BadCompletion for a function without a name, which is in `name_field`."""
    tools = list(map(flat_tool, list_of_objects(given, "tools")))
    for place, tool in enumerate(tools):
        if (tool.get("type") or "function") == "function" and not isinstance(tool.get("name"), str):
            raise missing_text(f"tools[{place}].{name_field}")
    return tools


def missing_text(place: str) -> BadCompletion:
    """Return the error for a value that is missing or no text."""
    return BadCompletion(f"{place} must be text", place)


def list_of_objects(value: object, place: str) -> list[dict[str, Any]]:
    """Return the value, or raise BadCompletion if it is no list of objects."""
    if not isinstance(value, list):
        raise BadCompletion(f"{place} must be a list of objects", place)
    for number, one in enumerate(value):
        if not isinstance(one, dict):
            raise BadCompletion(f"{place}[{number}] must be an object", f"{place}[{number}]")
    return value


def _read_sampling(given: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling fields with the names of the Responses API. Unknown fields are unchanged."""
    sampling = {key: value for key, value in given.items() if key not in _NOT_SAMPLING}
    for name in ("max_tokens", "max_completion_tokens"):
        if name in sampling:
            sampling["max_output_tokens"] = sampling.pop(name)
    if "reasoning_effort" in sampling:
        sampling["reasoning"] = {"effort": sampling.pop("reasoning_effort")}
    choice = sampling.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        sampling["tool_choice"] = {"type": "function", **choice["function"]}
    form = sampling.pop("response_format", None)
    if isinstance(form, dict):
        schema = form.get("json_schema")
        flat = {"type": "json_schema", **schema} if isinstance(schema, dict) else form
        sampling["text"] = {"format": flat}
    # Dropped, because capturing tokens requests logprobs itself.
    sampling.pop("logprobs", None)
    return sampling


def write_completion(reply: Reply, *, name: str, model: str, created: int) -> dict[str, Any]:
    """Return a reply as a completion. Raise PolicyError if it is not a single chat message."""
    messages = chat_messages(reply.items)
    if len(messages) > 1 or (messages and messages[0].get("role") != "assistant"):
        raise PolicyError("The reply is not a single model turn.")
    spoken: dict[str, Any] = {"content": None, **(messages[0] if messages else {}), "role": "assistant"}
    spoken["content"] = spoken["content"] or None
    if reply.tokens is not None:
        spoken |= reply.tokens.fields()
    used_in, used_out = reply.usage.get("input_tokens", 0), reply.usage.get("output_tokens", 0)
    finish = "tool_calls" if spoken.get("tool_calls") and reply.finish_reason == "stop" else reply.finish_reason
    return {
        "id": name,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": spoken, "finish_reason": _FINISH.get(finish, finish), "logprobs": None}],
        "usage": {
            "prompt_tokens": used_in,
            "completion_tokens": used_out,
            "total_tokens": used_in + used_out,
            "prompt_tokens_details": {
                "cached_tokens": reply.usage.get("cached_tokens", 0),
                "cache_write_tokens": reply.usage.get("cache_write_tokens", 0),
            },
            "completion_tokens_details": {"reasoning_tokens": reply.usage.get("reasoning_tokens", 0)},
        },
    }


def write_chunks(completion: dict[str, Any], *, with_usage: bool) -> bytes:
    """Return a completion as a stream of chunks. They are sent at once: policies return whole replies."""
    choice = completion["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    delta = {
        **choice["message"],
        **({"tool_calls": [{"index": n, **call} for n, call in enumerate(calls)]} if calls else {}),
    }
    head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
    ]
    if with_usage:
        chunks.append({**head, "choices": [], "usage": completion["usage"]})
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
