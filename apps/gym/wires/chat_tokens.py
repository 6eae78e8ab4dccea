"""Token IDs and logprobs of a Chat Completions reply, in the form of vLLM."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from apps.gym.traces.items import TokenUsage
from apps.gym.traces.tokens import ID_BYTES, TokenCapture, TokensMissing, match_usage


class _Logprob(msgspec.Struct, gc=False):
    logprob: Any = None
    id: Any = None


class Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


Ids = TypeVar("Ids", list[int], bytes)


def read_tokens(
    prompt: Ids | None,
    generation: Ids | None,
    logprobs: Logprobs | None,
    capture: Callable[[Ids, Ids, list[float]], TokenCapture],
) -> tuple[TokenCapture | None, str]:
    """Return the tokens. If token IDs or logprobs are missing, return None and the reason."""
    if not prompt or not generation:
        return None, "no_token_ids" if not prompt and not generation else "no_reply_ids" if prompt else "no_prompt_ids"
    if logprobs is None or not logprobs.content:
        return None, "no_logprobs"
    try:
        return capture(prompt, generation, [entry.logprob for entry in logprobs.content]), ""
    except TokensMissing as why:
        return None, why.note


def check_counts(tokens: TokenCapture | None, note: str, usage: TokenUsage) -> tuple[TokenCapture | None, str]:
    """Return tokens and note, without tokens if their numbers differ from the usage: a gateway dropped some."""
    if tokens is None:
        return None, note
    counts = len(tokens.prompt) // ID_BYTES, len(tokens.generation) // ID_BYTES
    return (tokens, note) if match_usage(*counts, usage) else (None, "usage_differs")
