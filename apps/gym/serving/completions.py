"""Convert between Chat Completions and Responses items, for serving a policy model."""

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
_FINISH = {"max_output_tokens": "length", "context_length": "length"}


class BadCompletion(Exception):
    """Raised for an unsupported feature. `param` is the name of the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A Chat Completions request as Responses items and options."""

    items: list[Item]
    tools: list[Tool]
    sampling: dict[str, Any]
    stream: bool = False
    stream_usage: bool = False


def read_completion(body: dict[str, Any]) -> Completion:
    """Convert a Chat Completions request. Raise BadCompletion."""
    given = {key: value for key, value in body.items() if value is not None}
    if given.get("n", 1) != 1:
        raise BadCompletion("only one choice per request is supported", "n")
    if "functions" in given or "function_call" in given:
        raise BadCompletion("functions are not supported. Use tools", "functions")
    options = given.get("stream_options")
    return Completion(
        items=_read_messages(given.get("messages")),
        tools=list(map(flat_tool, _list_of_objects(given.get("tools", []), "tools"))),
        sampling=_read_sampling(given),
        stream=given.get("stream") is True,
        stream_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _read_messages(messages: object) -> list[Item]:
    found = _list_of_objects(messages, "messages")
    if not found:
        raise BadCompletion("messages is empty", "messages")
    for place, message in enumerate(found):
        if message.get("role") not in _ROLES:
            raise BadCompletion(f"messages[{place}].role must be one of {', '.join(sorted(_ROLES))}", "messages")
        calls = message.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
            raise BadCompletion(f"messages[{place}].tool_calls must be a list of calls", "messages")
    try:
        return chat_items(found)
    except (AttributeError, TypeError, KeyError) as error:
        raise BadCompletion(f"messages cannot be read: {error}", "messages") from None


def _list_of_objects(value: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BadCompletion(f"{name} must be a list of objects", name)
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
