"""The interface of policy clients: an `Ask` with a conversation gets a `Reply`."""

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
    """The version of the model that an endpoint serves now, for example the name of a checkpoint or LoRA adapter.

    Set `version` after the endpoint has loaded another version. Replies to later calls record it.
    """

    __slots__ = ("__weakref__", "version")

    def __init__(self, version: str = "") -> None:
        self.version = version


def reseed(sampling: dict[str, Any], tries: int) -> dict[str, Any]:
    """Return the sampling of try number `tries`. Each try has its own seed, because equal seeds give equal replies."""
    seed = sampling.get("seed")
    if tries <= 1 or not isinstance(seed, int):
        return sampling
    return {**sampling, "seed": zlib.crc32(f"{seed}/{tries}".encode()) >> 1}


class Ask(msgspec.Struct, kw_only=True):
    """One request to a model: the whole conversation as items, and the tools to offer.

    `sampling` has Responses-style keys: temperature, top_p, max_output_tokens, seed, tool_choice, …

    `session` identifies the rollout: an endpoint with several servers gets all its calls on one of them if possible.

    `on_delta` receives the parts of a streamed reply. Only the Chat Completions wire calls it. After the first part,
    the call is not retried.

    `patience` is the maximum total wait in seconds while the endpoint throttles. None: wait as long as the endpoint
    accepts some calls (see `flow_control.PATIENCE`).

    With `strict` False, tools are never strict, even where the API makes them strict by default.

    `sent` caches the messages and token IDs of earlier calls of the same conversation, for the Chat Completions wire.

    No retry starts after an enclosing time limit (apps.gym.calls.time_limits) is over. `retries` counts them, also if
    the call fails.
    """

    items: list[Item]
    tools: list[Tool] = []
    sampling: dict[str, Any] = {}
    session: str = ""
    on_delta: OnDelta | None = None
    patience: float | None = None
    strict: bool = True
    sent: SentMessages | None = None
    retries: int = 0


class Reply(msgspec.Struct, kw_only=True):
    """One turn of the policy model.

    `finish_reason` is one of `stop`, `tool_calls`, `max_output_tokens`, `content_filter`, `context_length`.
    `server_finish_reason` keeps a reason that the wire format does not define. `version` is the version of
    the model that answered (see Weights). `sampling` is set if the request had other
    values: the seed of a retry, or fields of `extra_body` (see apps.gym.sent_sampling).
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

    def call_fields(self) -> dict[str, Any]:
        """Return the fields that a ModelCall copies, without sampling and tokens."""
        fields = msgspec.structs.asdict(self)
        del fields["sampling"], fields["tokens"]
        return fields


class Policy(Protocol):
    """Calls a model. Raises PolicyError without a valid reply, and TimedOut if call and retries take too long."""

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
    """Return the token counts that an endpoint reported. Invalid counts are ignored.

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
    if written := min(_count(cache_write_tokens) or 0, (inputs or 0) - usage["cached_tokens"]):
        usage["cache_write_tokens"] = written
    return usage


def read_detail(usage: dict[str, Any], details: str, name: str) -> Any:
    """Return `usage[details][name]`, or None if it is missing."""
    given = usage.get(details)
    return given.get(name) if isinstance(given, dict) else None


def has_all_counts(usage: TokenUsage) -> bool:
    """Return True if input and output tokens are known, as limits of tokens and cost require."""
    return "input_tokens" in usage and "output_tokens" in usage


def lacks_usage(call: ModelCall | JudgeCall) -> bool:
    """Return True if a billed reply does not report its usage.

    Calls that got no reply, or were refused because the context is full, are not billed.
    """
    has_reply = bool(call.items or call.finish_reason) and call.finish_reason != "context_length"
    return has_reply and not has_all_counts(call.usage)


def _count(given: Any) -> int | None:
    """Return a token count given as an integer, a whole float or digits. None for anything else."""
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= len(str(MAX_CALL_TOKENS)):
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MAX_CALL_TOKENS:
        return None
    return int(given) if given == int(given) else None
