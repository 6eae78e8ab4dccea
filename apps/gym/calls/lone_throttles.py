"""Tell a rate limit from an endpoint that throttles single calls at any rate.

Pooled keys of which one is used up, or a full replica among others, throttle a few calls at random. Calling such an
endpoint more slowly gains nothing. A rate limit throttles most calls that are sent soon after a throttle reply, before
its `Retry-After` has passed. A random throttle accepts most of them. Only calls sent in this time are evidence.
"""

ENOUGH = 20
"""Calls that must have been sent in such times before the evidence counts."""
MOST_THROTTLED = 1 / 2
"""Largest share of throttled calls among them at which single calls are retried alone."""
MOST_KEPT = 400
"""Number of calls at which both counts are halved, so that an endpoint may change its behaviour."""
MOST_LONE = 3
"""Throttle replies in a row, without any accepted call in between, that count as a rate limit.

Of calls that were sent together, only the first reply counts.
"""


class ThrottleEvidence:
    """The evidence of one process about one endpoint. Times are from time.monotonic.

    Calls without a reply count as accepted: a throttle reply arrives sooner than others.
    """

    def __init__(self) -> None:
        self.until = 0.0
        """Calls that start before this time are evidence."""
        self._sent = self._throttled = 0
        self._lone = 0
        self._told_at = 0.0
        self._accepted_before = 0

    def add_sent(self) -> None:
        """Count a call that is evidence."""
        self._sent += 1
        if self._sent >= MOST_KEPT:
            self._sent, self._throttled = self._sent // 2, self._throttled // 2

    def shows_rate_limit(self, sent: float, now: float, pause: float, *, accepted: int, is_evidence: bool) -> bool:
        """Take a throttle reply. Return True if all calls must slow down, False if this call may be retried alone.

        The call was sent at `sent`, and the endpoint asks for a pause in seconds. `accepted` is the number of calls
        that it has accepted so far. `is_evidence` tells whether the call is evidence.
        """
        self.until = max(self.until, now + pause)
        if is_evidence:
            self._throttled += 1
        elif sent >= self._told_at:
            self._lone = self._lone + 1 if accepted == self._accepted_before else 1
            self._told_at, self._accepted_before = now, accepted
        if self._sent < ENOUGH:
            return self._lone >= MOST_LONE
        return self._throttled > MOST_THROTTLED * self._sent
