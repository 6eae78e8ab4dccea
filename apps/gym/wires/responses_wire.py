"""The Responses wire: the body of a request, and reply items with unknown fields kept."""

import secrets
from typing import Any

import msgspec

from apps.gym.errors import PolicyError
from apps.gym.json_constants import null_constants
from apps.gym.traces.item_repair import mend_item
from apps.gym.traces.items import (
    Item,
    TokenUsage,
    as_object,
    encode_json,
    item_type,
    read_json,
    valid_arguments,
)
from apps.gym.wires.chat_reply import ReplyInterrupted, ReplyMalformed, as_name, foreign_reason, read_error
from apps.gym.wires.dialect import PLAIN, Dialect, check_sampling
from apps.gym.wires.protocol import Ask, Reply, read_detail, read_usage

_NEEDS_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
_STATUSES = frozenset({"completed", "incomplete"})
_REASONS = frozenset({"max_output_tokens", "content_filter"})
_RETRYABLE = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "vector_store_timeout",
        # of the Messages API
        "api_error",
        "overloaded_error",
        "rate_limit_error",
        "timeout_error",
    }
)


_STREAM_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ReplyFailed(PolicyError):
    """Raised for a failed response. `code` is the endpoint's error code; `retryable` is True if a retry may succeed."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.retryable = code in _RETRYABLE


def responses_request(ask: Ask, *, model_name: str, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """Return the body of POST /responses.

    Reasoning is sent back unchanged, unless the dialect drops it.

    Raises SamplingRefused for sampling that would contradict the trace, and PolicyError for a task's
    `metadata.extra_body` that cannot be merged.
    """
    check_sampling(ask.sampling)
    items = ask.items
    if dialect.reasoning == "dropped":
        items = [item for item in items if item_type(item) != "reasoning"]
    # Some servers stream by default.
    body: dict[str, Any] = {"model": model_name, "input": [_sendable(item) for item in items], "stream": False}
    if ask.tools:
        body["tools"] = ask.tools if ask.strict else [{**tool, "strict": False} for tool in ask.tools]
    for key, value in ask.sampling.items():
        # Streaming needs Chat Completions.
        if value is None or key == "stream" or (key == "seed" and not dialect.takes_seed):
            continue
        if key in _NEEDS_TOOLS and not ask.tools:
            continue
        body[key] = value
    return dialect.finish(body)


def _sendable(item: Item) -> Item:
    """Return the item with arguments that servers can parse."""
    if item.get("type") != "function_call":
        return item
    given = item.get("arguments")
    arguments = valid_arguments(given)
    return item if arguments == given else {**item, "arguments": arguments}


# Only required fields are typed. Optional fields are ignored if they have the wrong type.


class _Envelope(msgspec.Struct):
    output: list[dict[str, Any]]
    id: Any = ""
    model: Any = None
    status: Any = None
    error: Any = None
    incomplete_details: Any = None
    usage: Any = None


_decoder = msgspec.json.Decoder(_Envelope)


def read_responses_reply(body: bytes) -> Reply:
    """Return the response's output as items.

    Raises ReplyFailed for a failed response, ReplyMalformed for an invalid one.
    """
    try:
        envelope = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_envelope(body, error) from None
    if envelope.error or envelope.status == "failed":
        raise _failed(envelope.error)
    if envelope.status in ("queued", "in_progress", "cancelled"):
        raise ReplyMalformed(f"The endpoint's response is {envelope.status}, not completed.")
    response_id = as_name(envelope.id)
    # Call ids are derived from the id of the reply, because otherwise ids of two turns would collide.
    name = response_id or secrets.token_hex(8)
    try:
        items = [mend_item(item, f"{name}_{number}") for number, item in enumerate(envelope.output)]
    except ValueError as error:
        raise ReplyMalformed(f"The endpoint's reply is not a Responses object: {error}") from None
    return Reply(
        items=items,
        finish_reason=_finish_reason(envelope, items),
        server_finish_reason=foreign_reason(_reason(envelope), _REASONS) or foreign_reason(envelope.status, _STATUSES),
        usage=read_responses_usage(envelope.usage),
        model=as_name(envelope.model),
        response_id=response_id,
    )


def join_responses_stream(body: bytes) -> bytes:
    """Return the response at the end of a stream, or the error in its place.

    Raises ReplyMalformed for an interrupted stream; the error is permanent if the stream is of another API.
    """
    is_response = False
    for line in reversed(body.splitlines()):
        event = as_object(read_json(null_constants(line[5:]))) if line.startswith(b"data:") else {}
        kind = str(event.get("type"))
        if kind in _STREAM_ENDS:
            return encode_json(event.get("response"))
        if kind == "error":
            return encode_json({"error": as_object(event.get("error")) or event})
        is_response = is_response or kind.startswith("response.")
    if is_response:
        raise ReplyInterrupted("The endpoint's stream ended before its response did.")
    raise ReplyMalformed("The endpoint's stream has no events of the Responses API.").permanent()


def _no_envelope(body: bytes, error: Exception) -> PolicyError:
    refusal = read_error(body)
    if refusal is not None:
        return _failed(refusal)
    return ReplyMalformed(f"The endpoint's reply is not a Responses object: {error}")


def _failed(error: Any) -> ReplyFailed:
    failure = error if isinstance(error, dict) else {"message": error}
    message, code = failure.get("message"), failure.get("code")
    message = message if isinstance(message, str) and message else "no reason given"
    return ReplyFailed(f"The endpoint failed to answer: {message}", code=as_name(code))


def _reason(envelope: _Envelope) -> Any:
    details = envelope.incomplete_details
    return details.get("reason") if isinstance(details, dict) else None


def _finish_reason(envelope: _Envelope, items: list[Item]) -> str:
    reason = _reason(envelope)
    if reason or envelope.status == "incomplete":
        # An incomplete response without a reason is cut too, and so is its last call.
        return "content_filter" if reason == "content_filter" else "max_output_tokens"
    if any(item["type"] == "function_call" for item in items):
        return "tool_calls"
    return "stop"


def read_responses_usage(usage: Any) -> TokenUsage:
    """Return the token counts of a response."""
    if not isinstance(usage, dict):
        return {}
    return read_usage(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cached_tokens=read_detail(usage, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=read_detail(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=read_detail(usage, "output_tokens_details", "reasoning_tokens"),
    )
