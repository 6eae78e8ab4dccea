"""Interpret error replies of endpoints: message, throttling, exhausted quota."""

import re

import msgspec
import orjson

from apps.gym.calls.outbound import OutboundReply
from apps.gym.calls.retries import parse_retry_after
from apps.gym.redaction.shortening import cut_body
from apps.gym.traces.items import as_object, read_json

_BEGINS_WITH_ERROR = re.compile(rb'\s*\{\s*"error"\s*:\s*\{')
MAX_MESSAGE = 2_000
"""Maximum characters of a message from a body that is not JSON."""

# Codes for an exhausted quota of OpenAI, Azure OpenAI, Moonshot, DeepSeek, Hugging Face and OpenRouter.
_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "project_spend_limit_exceeded",
        "quota_exceeded",
        "exceeded_current_quota_error",
        "insufficient_balance",
        "insufficient_credits",
    }
)
# Anthropic has no such code.
_QUOTA_WORDS = "credit balance is too low"
_QUOTA_STATUSES = frozenset({400, 402, 403, 429})


def is_throttled(reply: OutboundReply) -> bool:
    """Return True for a 429 unless the quota is exhausted, for Anthropic's 529, and for a 503 with a time to retry."""
    if reply.status == 429:
        return not is_quota_exhausted(reply)
    if reply.status == 529:
        return True
    return reply.status == 503 and read_retry_after(reply) is not None


def read_retry_after(reply: OutboundReply) -> float | None:
    """Return the seconds to wait, from `Retry-After`, OpenAI's `retry-after-ms` or LiteLLM's header, or None."""
    milliseconds = parse_retry_after(reply.headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    # LiteLLM passes the header of the model's server on under another name.
    return parse_retry_after(reply.headers.get("Retry-After") or reply.headers.get("llm_provider-retry-after"))


def is_quota_exhausted(reply: OutboundReply) -> bool:
    """Return True if credit or a spending limit is exhausted, so that waiting does not help."""
    if reply.status == 402:
        return True
    if reply.status not in _QUOTA_STATUSES:
        return False
    return (
        not _QUOTA_CODES.isdisjoint(_read_codes(reply.body)) or _QUOTA_WORDS in explain_refusal(reply.body)[0].lower()
    )


def reveal_error(reply: OutboundReply) -> OutboundReply:
    """Return the reply with the status of the error in its body. OpenRouter and others send errors with status 200."""
    if reply.status != 200 or not _BEGINS_WITH_ERROR.match(reply.body):
        return reply
    code = as_object(as_object(read_json(reply.body)).get("error")).get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return msgspec.structs.replace(reply, status=code)
    return reply


def explain_refusal(body: bytes) -> tuple[str, str]:
    """Return (message, code) of an error body in any common format."""
    given = read_json(body, default=...)
    if given is ...:
        return cut_body(body, MAX_MESSAGE), ""
    if isinstance(given, dict):
        error = given.get("error", given)
        if isinstance(error, dict):
            message = error.get("message") or error.get("detail") or given.get("detail") or given.get("message")
            code = error.get("code")
            code = code if isinstance(code, str) else error.get("type")
            return _text(message), code if isinstance(code, str) else ""
        return _text(error), ""
    return _text(given), ""


def _read_codes(body: bytes) -> set[str]:
    """Return all codes and types of an error body, in lower case."""
    given = as_object(read_json(body))
    error = given.get("error")
    parts = [part for part in (error, given) if isinstance(part, dict)]
    codes = [part.get(key) for part in parts for key in ("code", "type")]
    return {code.lower() for code in codes if isinstance(code, str)}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # nested too deeply
        return ""
