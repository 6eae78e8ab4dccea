"""Token IDs and logprobs of a Chat Completions reply, in the form of vLLM."""

import msgspec

from apps.gym.traces.tokens import TokenCapture, TokensMissing, capture_tokens


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


def read_tokens(
    prompt: list[int] | None, generation: list[int] | None, logprobs: Logprobs | None
) -> tuple[TokenCapture | None, str]:
    """Return the packed token IDs and logprobs. If any of them are missing, return None and the reason."""
    if not prompt or not generation:
        return None, "no_token_ids"
    if logprobs is None or not logprobs.content:
        return None, "no_logprobs"
    try:
        return capture_tokens(prompt, generation, [entry.logprob for entry in logprobs.content]), ""
    except TokensMissing as why:
        return None, why.note
