"""The policy-client protocol: items in, a reply out."""

import zlib
from typing import Any, Protocol

import msgspec

from apps.gym.traces.chat_turns import SentMessages
from apps.gym.traces.events import JudgeCall, ModelCall
from apps.gym.traces.items import Item, TokenUsage, Tool
from apps.gym.traces.tokens import TokenCapture
from apps.gym.wires.chat_deltas import OnDelta

VERDICT_SCHEMA = "verdict"
"""Schema name of judge verdicts. The scripted policy recognises questions of a judge by it."""
USER_ROLE = "You play a user"
"""Start of the system prompt of a simulated user. The scripted policy recognises it."""


class Weights:
    """The model version that an endpoint serves now: a checkpoint, weights or an adapter.

    Set `version` after loading a new one. Calls that start later record it.
    """

    __slots__ = ("__weakref__", "version")

    def __init__(self, version: str = "") -> None:
        self.version = version


def reseed(sampling: dict[str, Any], tries: int) -> dict[str, Any]:
    """Return the sampling for another try with a new seed, because the same seed would give the same reply."""
    seed = sampling.get("seed")
    if tries <= 1 or not isinstance(seed, int):
        return sampling
    return {**sampling, "seed": zlib.crc32(f"{seed}/{tries}".encode()) >> 1}


class Ask(msgspec.Struct, kw_only=True):
    """One request.

    `sampling` has Responses-style keys: temperature, top_p, max_output_tokens, seed, tool_choice, …

    `session` names the rollout, so that an endpoint with several servers can keep it on one of them. No retry starts
    after an enclosing time limit (apps.gym.calls.time_limits).

    With `on_delta`, the reply is streamed over the Chat Completions wire; other wires never call it. No retry starts
    after the first delta.

    `patience` is the maximum wait in seconds while the endpoint throttles. None: wait as long as the endpoint accepts
    some calls (see `flow_control.PATIENCE`).

    With `strict` False, tools are never strict, even where the API makes them strict by default.

    `sent` keeps the messages of earlier calls of the same conversation, for the Chat Completions wire.
    """

    items: list[Item]
    tools: list[Tool] = []
    sampling: dict[str, Any] = {}
    session: str = ""
    on_delta: OnDelta | None = None
    patience: float | None = None
    strict: bool = True
    sent: SentMessages | None = None


class Reply(msgspec.Struct, kw_only=True):
    """One turn of the policy model.

    `finish_reason` is one of `stop`, `tool_calls`, `max_output_tokens`, `content_filter`, `context_length`.
    `server_finish_reason` keeps a reason that the wire format does not define. `version` names the checkpoint or
    weights that answered. `sampling` is set only if a retry used another seed.
    `tokens_note` is the reason for missing `tokens`, if they were requested. `grammar` is True if the request allowed
    the server to constrain the reply by a grammar.
    """

    items: list[Item]
    finish_reason: str
    server_finish_reason: str = ""
    usage: TokenUsage = {}
    model: str = ""
    response_id: str = ""
    version: str = ""
    retries: int = 0
    sampling: dict[str, Any] | None = None
    tokens: TokenCapture | None = None
    tokens_note: str = ""
    grammar: bool = False


class Policy(Protocol):
    """Calls a model. Raises PolicyError if there is no reply, and TimedOut if the time, including retries, ran out."""

    async def ask(self, ask: Ask) -> Reply: ...


MAX_CALL_TOKENS = 1_000_000_000
"""Maximum tokens of one call. Larger counts are ignored, so that they do not affect cost and limits."""


def read_usage(
    *,
    input_tokens: Any,
    output_tokens: Any,
    cached_tokens: Any = None,
    cache_write_tokens: Any = None,
    reasoning_tokens: Any = None,
) -> TokenUsage:
    """Return the valid counts.

    `input_tokens` and `output_tokens` are missing if the endpoint did not report them, and `cache_write_tokens` if
    there are none. Cached and cache write tokens never exceed input tokens, and reasoning tokens never exceed output
    tokens, so that no price can be negative.
    """
    usage: TokenUsage = {}
    inputs, outputs = _count(input_tokens), _count(output_tokens)
    if inputs is None and outputs is None:
        return usage
    if inputs is not None:
        usage["input_tokens"] = inputs
    if outputs is not None:
        usage["output_tokens"] = outputs
    usage["reasoning_tokens"] = min(_count(reasoning_tokens) or 0, outputs or 0)
    usage["cached_tokens"] = min(_count(cached_tokens) or 0, inputs or 0)
    if stored := min(_count(cache_write_tokens) or 0, (inputs or 0) - usage["cached_tokens"]):
        usage["cache_write_tokens"] = stored
    return usage


def read_detail(usage: dict[str, Any], details: str, name: str) -> Any:
    """Return the count `name` of the nested object `details`, if it exists."""
    given = usage.get(details)
    return given.get(name) if isinstance(given, dict) else None


def has_all_counts(usage: TokenUsage) -> bool:
    """Return True if input and output tokens are known, as limits of tokens and cost require."""
    return "input_tokens" in usage and "output_tokens" in usage


def lacks_usage(call: ModelCall | JudgeCall) -> bool:
    """Return True if a billed reply does not report its usage.

    Calls without a reply, or refused because the context is full, are not billed.
    """
    has_reply = bool(call.items or call.finish_reason) and call.finish_reason != "context_length"
    return has_reply and not has_all_counts(call.usage)


def _count(given: Any) -> int | None:
    """Return a number of tokens in any notation, or None for anything else."""
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= len(str(MAX_CALL_TOKENS)):
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MAX_CALL_TOKENS:
        return None
    return int(given) if given == int(given) else None
