"""What a reply says it used, as far as it can be believed."""

from typing import Any

from apps.gym.traces.events import JudgeCall, ModelCall
from apps.gym.traces.items import TokenUsage

MOST_TOKENS = 1_000_000_000
"""Of one call. A larger count is no count: cost and limits are not to be made of it."""


def read_usage(*, read: Any, written: Any, cached: Any = None, reasoned: Any = None) -> TokenUsage:
    """The counts that are counts; a usage without `input_tokens` or `output_tokens` did not tell them.

    A part is never more than its whole, so that no price can turn negative.
    """
    usage: TokenUsage = {}
    inputs, outputs = _count(read), _count(written)
    if inputs is None and outputs is None:
        return usage
    if inputs is not None:
        usage["input_tokens"] = inputs
    if outputs is not None:
        usage["output_tokens"] = outputs
    usage["reasoning_tokens"] = min(_count(reasoned) or 0, outputs or 0)
    usage["cached_tokens"] = min(_count(cached) or 0, inputs or 0)
    return usage


def read_detail(usage: dict[str, Any], details: str, name: str) -> Any:
    """A count that stands one level deeper, where there is such a level."""
    given = usage.get(details)
    return given.get(name) if isinstance(given, dict) else None


def tells_all(usage: TokenUsage) -> bool:
    """Whether limits of tokens and of cost can be held by it."""
    return "input_tokens" in usage and "output_tokens" in usage


def lacks_usage(call: ModelCall | JudgeCall) -> bool:
    """Whether a model was paid for this reply and did not say how much. A call that came back without a reply, or with
    a refusal since the context is full, had nothing to tell."""
    has_reply = bool(call.items or call.finish_reason) and call.finish_reason != "context_length"
    return has_reply and not tells_all(call.usage)


def _count(given: Any) -> int | None:
    """A number of tokens, however it is written, and nothing else."""
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= len(str(MOST_TOKENS)):
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MOST_TOKENS:
        return None
    return int(given) if given == int(given) else None
