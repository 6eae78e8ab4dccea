"""Token IDs and logprobs of a Chat Completions reply, in the form of vLLM."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from apps.gym.traces.tokens import TokenCapture, TokensMissing


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


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
        return None, "no_token_ids"
    if logprobs is None or not logprobs.content:
        return None, "no_logprobs"
    try:
        return capture(prompt, generation, [entry.logprob for entry in logprobs.content]), ""
    except TokensMissing as why:
        return None, why.note
