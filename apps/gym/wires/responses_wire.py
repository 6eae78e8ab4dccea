"""The Responses wire: a request body, and the reply's items kept as they are, unknown fields included."""

import secrets
from typing import Any

import msgspec

from apps.gym.errors import PolicyError
from apps.gym.traces.item_repair import mend_item
from apps.gym.traces.items import Item, TokenUsage, item_type
from apps.gym.wires.chat_reply import ReplyMalformed, as_name, foreign_reason
from apps.gym.wires.dialect import PLAIN, Dialect, check_sampling
from apps.gym.wires.protocol import Ask, Reply
from apps.gym.wires.usage import read_detail, read_usage

_NEEDS_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
_STATUSES = frozenset({"completed", "incomplete"})
_REASONS = frozenset({"max_output_tokens", "content_filter"})
_RETRYABLE = frozenset({"server_error", "rate_limit_exceeded", "vector_store_timeout"})


class ReplyFailed(PolicyError):
    """The endpoint answered with a failed response. `code` is the endpoint's own; `retryable` says if it may pass."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.retryable = code in _RETRYABLE


def responses_request(ask: Ask, *, model_name: str, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """The body of POST /responses. Reasoning is sent back as it came, unless the dialect drops it.

    Raises SamplingRefused for sampling that would change what the trace tells, and PolicyError for a task's
    `metadata.extra_body` that cannot be merged.
    """
    check_sampling(ask.sampling)
    items = ask.items
    if dialect.reasoning == "dropped":
        items = [item for item in items if item_type(item) != "reasoning"]
    body: dict[str, Any] = {"model": model_name, "input": items}
    if ask.tools:
        body["tools"] = ask.tools
    for key, value in ask.sampling.items():
        # A streamed reply is read over Chat Completions only.
        if value is None or key == "stream" or (key == "seed" and not dialect.takes_seed):
            continue
        if key in _NEEDS_TOOLS and not ask.tools:
            continue
        body[key] = value
    return dialect.finish(body)


# Only what a reply cannot be read without is typed: everything else is taken where it is what it should be.


class _Envelope(msgspec.Struct):
    output: list[dict[str, Any]]
    id: Any = ""
    model: Any = None
    status: Any = None
    error: Any = None
    incomplete_details: Any = None
    usage: Any = None


class _Refusal(msgspec.Struct):
    error: dict[str, Any] | str


_decoder = msgspec.json.Decoder(_Envelope)
_refusal_decoder = msgspec.json.Decoder(_Refusal)


def read_responses_reply(body: bytes) -> Reply:
    """The response's output as items. Raises ReplyFailed for a failed response, ReplyMalformed for anything else."""
    try:
        envelope = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_envelope(body, error) from None
    if envelope.error or envelope.status == "failed":
        raise _failed(envelope.error)
    if envelope.status in ("queued", "in_progress", "cancelled"):
        raise ReplyMalformed(f"The endpoint's response is {envelope.status}, not completed.")
    response_id = as_name(envelope.id)
    # Ids of calls are made of the reply's; without one, those of two turns would be the same.
    name = response_id or secrets.token_hex(8)
    try:
        items = [mend_item(item, f"{name}_{number}") for number, item in enumerate(envelope.output)]
    except ValueError as error:
        raise ReplyMalformed(f"The endpoint's reply is no Responses object: {error}") from None
    return Reply(
        items=items,
        finish_reason=_finish_reason(envelope, items),
        server_finish_reason=_foreign(envelope),
        usage=_usage(envelope.usage),
        model=as_name(envelope.model),
        response_id=response_id,
    )


def _no_envelope(body: bytes, error: Exception) -> PolicyError:
    """Some servers answer 200 with nothing but an error object."""
    try:
        return _failed(_refusal_decoder.decode(body).error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ReplyMalformed(f"The endpoint's reply is no Responses object: {error}")


def _failed(error: Any) -> ReplyFailed:
    failure = error if isinstance(error, dict) else {"message": error}
    message, code = failure.get("message"), failure.get("code")
    message = message if isinstance(message, str) and message else "it gave no reason"
    return ReplyFailed(f"The endpoint failed to answer: {message}", code=as_name(code))


def _foreign(envelope: _Envelope) -> str:
    """A reason or a status that the wire does not have."""
    details = envelope.incomplete_details
    reason = details.get("reason") if isinstance(details, dict) else None
    return foreign_reason(reason, _REASONS) or foreign_reason(envelope.status, _STATUSES)


def _finish_reason(envelope: _Envelope, items: list[Item]) -> str:
    details = envelope.incomplete_details
    reason = details.get("reason") if isinstance(details, dict) else None
    if reason or envelope.status == "incomplete":
        # An incomplete response without a reason is cut all the same, and its last call with it.
        return "content_filter" if reason == "content_filter" else "max_output_tokens"
    if any(item["type"] == "function_call" for item in items):
        return "tool_calls"
    return "stop"


def _usage(usage: Any) -> TokenUsage:
    if not isinstance(usage, dict):
        return {}
    return read_usage(
        read=usage.get("input_tokens"),
        written=usage.get("output_tokens"),
        cached=read_detail(usage, "input_tokens_details", "cached_tokens"),
        reasoned=read_detail(usage, "output_tokens_details", "reasoning_tokens"),
    )
