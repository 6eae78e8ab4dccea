"""The Responses wire: a request body, and the reply's items kept as they are, unknown fields included."""

from typing import Any

import msgspec

from apps.gym.errors import PolicyError
from apps.gym.items import Item, TokenUsage, item_type
from apps.gym.policy.chat_reply import ReplyMalformed
from apps.gym.policy.dialect import PLAIN, Dialect
from apps.gym.policy.protocol import Ask, Reply

_OURS = frozenset({"input", "model", "stream", "tools"})
_RETRYABLE = frozenset({"server_error", "rate_limit_exceeded", "vector_store_timeout"})


class ReplyFailed(PolicyError):
    """The endpoint answered with a failed response. `code` is the endpoint's own; `retryable` says if it may pass."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.retryable = code in _RETRYABLE


def responses_request(ask: Ask, *, model_name: str, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """The body of POST /responses. Reasoning is sent back as it came, unless the dialect drops it."""
    items = ask.items
    if dialect.reasoning == "dropped":
        items = [item for item in items if item_type(item) != "reasoning"]
    body: dict[str, Any] = {"model": model_name, "input": items}
    if ask.tools:
        body["tools"] = ask.tools
    for key, value in ask.sampling.items():
        if value is None or key in _OURS or (key == "seed" and not dialect.takes_seed):
            continue
        if key in ("tool_choice", "parallel_tool_calls") and not ask.tools:
            continue
        body[key] = value
    return dialect.finish(body)


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Failure(msgspec.Struct):
    code: str | int | None = None
    message: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Envelope(msgspec.Struct):
    output: list[dict[str, Any]]
    id: str = ""
    model: str | None = None
    status: str | None = None
    error: _Failure | None = None
    incomplete_details: _Incomplete | None = None
    usage: _Usage | None = None


class _Refusal(msgspec.Struct):
    error: _Failure


_decoder = msgspec.json.Decoder(_Envelope)
_refusal_decoder = msgspec.json.Decoder(_Refusal)


def read_responses_reply(body: bytes) -> Reply:
    """The response's output as items. Raises ReplyFailed for a failed response, ReplyMalformed for anything else."""
    try:
        envelope = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_envelope(body, error) from None
    if envelope.error is not None or envelope.status == "failed":
        raise _failed(envelope.error or _Failure())
    if envelope.status in ("queued", "in_progress", "cancelled"):
        raise ReplyMalformed(f"The endpoint's response is {envelope.status}, not completed.")
    items = [_typed(item) for item in envelope.output]
    return Reply(
        items=items,
        finish_reason=_finish_reason(envelope, items),
        usage=_usage(envelope.usage),
        model=envelope.model or "",
        response_id=envelope.id,
    )


def _no_envelope(body: bytes, error: Exception) -> PolicyError:
    """Some servers answer 200 with nothing but an error object."""
    try:
        return _failed(_refusal_decoder.decode(body).error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ReplyMalformed(f"The endpoint's reply is no Responses object: {error}")


def _failed(failure: _Failure) -> ReplyFailed:
    return ReplyFailed(
        f"The endpoint failed to answer: {failure.message or 'it gave no reason'}", code=str(failure.code or "")
    )


def _typed(item: Item) -> Item:
    return item if "type" in item else {"type": item_type(item), **item}


def _finish_reason(envelope: _Envelope, items: list[Item]) -> str:
    if envelope.incomplete_details is not None and envelope.incomplete_details.reason:
        reason = envelope.incomplete_details.reason
        return "content_filter" if reason == "content_filter" else "max_output_tokens"
    if any(item["type"] == "function_call" for item in items):
        return "tool_calls"
    return "stop"


def _usage(usage: _Usage | None) -> TokenUsage:
    if usage is None:
        return {}
    given, made = usage.input_tokens_details, usage.output_tokens_details
    return {
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "reasoning_tokens": (made.reasoning_tokens if made else None) or 0,
        "cached_tokens": (given.cached_tokens if given else None) or 0,
    }
