"""The Messages wire: convert a reply message to the items of a turn and back, and write the API's other bodies."""

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from apps.gym.traces.items import Item, TokenUsage, Tool, as_object, encode_json, function_calls
from apps.gym.wires.chat_reply import CallsMissing, ReplyMalformed, as_name, foreign_reason, has_message, read_error
from apps.gym.wires.messages_content import Block, assistant_blocks, assistant_items
from apps.gym.wires.protocol import Reply, read_usage
from apps.gym.wires.responses_wire import ReplyFailed

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "max_output_tokens",
    "refusal": "content_filter",
    "model_context_window_exceeded": "context_length",
}
_STOP_REASONS = {finish: reason for reason, finish in _FINISH.items() if reason != "stop_sequence"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_CHARACTERS_PER_TOKEN = 4


# Only required fields are typed. Optional fields are ignored if they have the wrong type.


class _Block(msgspec.Struct):
    type: str
    text: Any = None
    thinking: Any = None
    signature: Any = None
    data: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct):
    content: list[_Block]
    id: Any = ""
    model: Any = None
    stop_reason: Any = None
    usage: Any = None


_decoder = msgspec.json.Decoder(_Message)


def read_messages_reply(body: bytes) -> Reply:
    """Return the message as items. The arguments of a call are the JSON of its input, unchanged.

    Raises ReplyMalformed, CallsMissing if the stop reason is tool_use but the reply is empty, and ReplyFailed for an
    error in place of a message. Blocks of server tools, and citations, are left out.
    """
    try:
        message = _decoder.decode(body)
        blocks = [_plain_block(block) for block in message.content]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if refusal := read_error(body):
            raise failed_reply(refusal) from None
        raise ReplyMalformed(f"The endpoint's reply is not a message: {error}") from None
    response_id = as_name(message.id)
    # Ids are derived from the id of the reply, because otherwise ids of two turns would collide.
    items = assistant_items(blocks, response_id or secrets.token_hex(8))
    return Reply(
        items=items,
        finish_reason=_finish_reason(message.stop_reason, items),
        server_finish_reason=foreign_reason(message.stop_reason, frozenset(_FINISH)),
        usage=read_messages_usage(message.usage),
        model=as_name(message.model),
        response_id=response_id,
    )


def failed_reply(error: Any) -> ReplyFailed:
    """Return the error that an endpoint sent after status 200, in place of a reply or in its stream."""
    told = error if isinstance(error, dict) else {"message": error}
    message = told.get("message")
    message = message if isinstance(message, str) and message else "no reason given"
    return ReplyFailed(f"The endpoint failed to answer: {message}", code=as_name(told.get("type")))


def read_messages_usage(usage: Any) -> TokenUsage:
    """Return the token counts. Input tokens include the tokens read from or written to a cache."""
    if not isinstance(usage, dict):
        return {}
    counts = [
        usage.get(name) or 0 for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    whole = sum(counts) if all(isinstance(count, int) and count >= 0 for count in counts) else None
    return read_usage(
        input_tokens=None if usage.get("input_tokens") is None else whole,
        output_tokens=usage.get("output_tokens"),
        cached_tokens=usage.get("cache_read_input_tokens"),
        cache_write_tokens=usage.get("cache_creation_input_tokens"),
        reasoning_tokens=as_object(usage.get("output_tokens_details")).get("thinking_tokens"),
    )


def _plain_block(block: _Block) -> Block:
    given = bytes(block.input)
    # Some servers send the input as JSON text.
    text = msgspec.json.decode(given, type=str) if given.startswith(b'"') else given.decode()
    plain = {name: getattr(block, name) for name in ("type", "text", "thinking", "signature", "data", "name")}
    return {**plain, "id": as_name(block.id), "input": "{}" if text == "null" else text}


def _finish_reason(given: Any, items: list[Item]) -> str:
    has_calls = bool(function_calls(items))
    finish = _FINISH.get(given, "stop") if isinstance(given, str) else "stop"
    if finish == "tool_calls" and not has_calls:
        if not has_message(items):
            raise CallsMissing("The reply's stop reason is tool_use, but it has no tool call and no text.")
        return "stop"
    return "tool_calls" if finish == "stop" and has_calls else finish


# ── replies → messages ───────────────────────────────────────────────────────────────────────────────────────────────


def write_message(reply: Reply, *, name: str, model: str) -> dict[str, Any]:
    """Return the reply as a message. `name` is its id. Reasoning without a signature gets an empty one."""
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": assistant_blocks(reply.items, unsigned=True),
        "stop_reason": stop_reason(reply),
        "stop_sequence": None,
        "usage": write_messages_usage(reply.usage),
    }


def stop_reason(reply: Reply) -> str:
    """Return the stop reason of the API for the finish reason of a reply."""
    if reply.finish_reason == "stop" and function_calls(reply.items):
        return "tool_use"
    return _STOP_REASONS.get(reply.finish_reason, "end_turn")


def write_messages_usage(usage: TokenUsage) -> dict[str, Any]:
    """Return the token counts of a message. Its input tokens exclude those read from or written to a cache."""
    cached, stored = usage.get("cached_tokens", 0), usage.get("cache_write_tokens", 0)
    written: dict[str, Any] = {
        "input_tokens": usage.get("input_tokens", 0) - cached - stored,
        "cache_creation_input_tokens": stored,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.get("output_tokens", 0),
    }
    if thought := usage.get("reasoning_tokens"):
        written["output_tokens_details"] = {"thinking_tokens": thought}
    return written


def write_token_count(items: list[Item], tools: list[Tool]) -> dict[str, Any]:
    """Return an estimate of the input tokens from the length of the conversation as JSON."""
    return {"input_tokens": len(encode_json([items, tools])) // _CHARACTERS_PER_TOKEN}


def write_models(names: Iterable[str]) -> dict[str, Any]:
    """Return the list of models. Clients of OpenAI's API can read it too."""
    cards = [
        {
            "id": name,
            "type": "model",
            "display_name": name,
            "created_at": "1970-01-01T00:00:00Z",
            "object": "model",
            "created": 0,
            "owned_by": "gymweb",
        }
        for name in names
    ]
    ends = {"first_id": cards[0]["id"] if cards else None, "last_id": cards[-1]["id"] if cards else None}
    return {"object": "list", "data": cards, "has_more": False, **ends}


def write_messages_error(status: int, message: str) -> dict[str, Any]:
    """Return the body of an error with this HTTP status."""
    return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}
