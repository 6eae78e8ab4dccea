"""The policy-client protocol: items in, a reply out."""

import zlib
from typing import Any, Protocol

import msgspec

from apps.gym.traces.items import Item, TokenUsage, Tool
from apps.gym.traces.tokens import TokenCapture

VERDICT_SCHEMA = "verdict"
"""Names the structured output of an ask for a judge's verdict; a policy that plays by rule knows by it what to play."""


class Weights:
    """What answers behind an endpoint: a checkpoint, weights, an adapter. Whoever learns of another says so here, and
    the next call tells it."""

    __slots__ = ("__weakref__", "version")

    def __init__(self, version: str = "") -> None:
        self.version = version


def reseed(sampling: dict[str, Any], tries: int) -> dict[str, Any]:
    """The sampling of a further try at the same request: under the same seed it would answer the same again."""
    seed = sampling.get("seed")
    if tries <= 1 or not isinstance(seed, int):
        return sampling
    return {**sampling, "seed": zlib.crc32(f"{seed}/{tries}".encode()) >> 1}


class Ask(msgspec.Struct, kw_only=True):
    """One request. `sampling` holds Responses-style keys: temperature, top_p, max_output_tokens, seed, tool_choice, …

    `session` names the rollout, so that an endpoint with several servers can keep it on one of them. No retry starts
    after a time limit (apps.gym.calls.time_limits) that the caller runs under.
    """

    items: list[Item]
    tools: list[Tool] = []
    sampling: dict[str, Any] = {}
    session: str = ""


class Reply(msgspec.Struct, kw_only=True):
    """One turn of the policy model.

    `finish_reason` is one of `stop`, `tool_calls`, `max_output_tokens`, `content_filter`, `context_length`; where the
    endpoint's own word for it is none that its wire has, `server_finish_reason` tells it.
    `version` names the checkpoint or weights that answered. `sampling` is what the answer was asked for with, where it
    is not the ask's: a try after a reply that was none has another seed. `tokens_note` says why there are no
    `tokens` where they were asked for.
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


class Policy(Protocol):
    """Raises PolicyError when no reply can be had, TimedOut when the call's time ran out, retries included."""

    async def ask(self, ask: Ask) -> Reply: ...
