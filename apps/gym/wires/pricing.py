"""Compute the cost of model calls from their token counts."""

import msgspec

from apps.gym.traces.items import TokenUsage

_A_MILLION = 1e6


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens.

    `cached_input` applies to prompt tokens that the endpoint reports as cached; None uses the input price.
    """

    input: float = 0.0
    output: float = 0.0
    cached_input: float | None = None

    def cost(self, usage: TokenUsage) -> float:
        """Return the cost in USD.

        Reasoning tokens are part of the output tokens, and cached tokens of the input tokens.
        """
        given, said = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
        cached = 0 if self.cached_input is None else max(0, min(usage.get("cached_tokens", 0), given))
        return ((given - cached) * self.input + cached * (self.cached_input or 0.0) + said * self.output) / _A_MILLION


FREE = Prices()
