"""Report the outcome of each try of a call, to count calls and detect failing endpoints."""

from typing import Literal, Protocol

Outcome = Literal[
    "ok", "throttled", "quota", "refused", "server_error", "failed", "timed_out", "unreachable", "malformed"
]
"""`ok`: a reply, even if it rejects the request as invalid.

`throttled`: 429, 529, or 503 with Retry-After.

`quota`: the credit is used up. `refused`: invalid credentials or a missing path.

`server_error`: the endpoint has a problem. `failed`: only this request failed.
"""


class Observer(Protocol):
    def __call__(self, outcome: Outcome, message: str = "") -> None: ...


def ignore(outcome: Outcome, message: str = "") -> None:
    """Ignore the outcome."""
