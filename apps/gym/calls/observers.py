"""What clients say of every try of every call, so that others can count them and see an endpoint fail."""

from typing import Literal, Protocol

Outcome = Literal[
    "ok", "throttled", "quota", "refused", "server_error", "failed", "timed_out", "unreachable", "malformed"
]
"""`ok`: an answer, be it that the request is wrong. `throttled`: 429, or 503 with Retry-After.

`quota`: the credit is used up. `refused`: by credentials or a missing path.

`server_error` speaks of the endpoint, `failed` of this one request."""


class Observer(Protocol):
    def __call__(self, outcome: Outcome, message: str = "") -> None: ...


def ignore(outcome: Outcome, message: str = "") -> None:
    """An observer that wants to know nothing."""
