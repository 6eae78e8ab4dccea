"""How an endpoint's way of speaking a wire differs from the wire itself."""

from typing import Any

import msgspec

from apps.gym.policy.chat_turns import Reasoning


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed in a request before it is sent, and what is expected of a reply.

    `reasoning` says where the model's reasoning stands, or that it is not sent back. `asks_tokens`: token ids and
    logprobs of every turn, in vLLM's words. `extra_body` is merged into each request, `renamed` gives keys of it other
    names, such as `{"max_completion_tokens": "max_tokens"}`.
    """

    takes_seed: bool = True
    reasoning: Reasoning = "field"
    asks_tokens: bool = False
    extra_body: dict[str, Any] = {}
    renamed: dict[str, str] = {}

    def finish(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the request says itself wins over `extra_body`; objects in both are merged."""
        for key, value in self.extra_body.items():
            own = body.get(key)
            if isinstance(own, dict) and isinstance(value, dict):
                body[key] = {**value, **own}
            elif key not in body:
                body[key] = value
        if not self.renamed:
            return body
        return {self.renamed.get(key, key): value for key, value in body.items()}


PLAIN = Dialect()
