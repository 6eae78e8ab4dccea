"""Compute the cost of model calls from their token counts."""

import msgspec

from apps.gym.traces.items import TokenUsage

_A_MILLION = 1e6


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens.

    `cached_input` applies to input tokens that the endpoint read from its cache, and `cache_write` to those that it
    wrote to the cache. None uses the input price.
    """

    input: float = 0.0
    output: float = 0.0
    cached_input: float | None = None
    cache_write: float | None = None

    def cost(self, usage: TokenUsage) -> float:
        """Return the cost in USD.

        Reasoning tokens are part of the output tokens; cached and cache write tokens are parts of the input tokens.
        """
        given, cost = usage.get("input_tokens", 0), usage.get("output_tokens", 0) * self.output
        for price, count in (
            (self.cached_input, usage.get("cached_tokens", 0)),
            (self.cache_write, usage.get("cache_write_tokens", 0)),
        ):
            if price is not None:
                part = max(0, min(count, given))
                given -= part
                cost += part * price
        return (cost + given * self.input) / _A_MILLION


def known_cost(cost: float, tokens: int, *, is_free: bool) -> float | None:
    """Return the cost, or None if tokens were used and no model had prices."""
    return None if tokens and not cost and not is_free else cost


FREE = Prices()
