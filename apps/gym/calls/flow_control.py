"""Send calls to one endpoint in order of arrival, no faster than it allows.

A gate costs almost nothing until the endpoint throttles. From then on, each call waits for a start time, which
`rate_control` assigns across all processes. If the endpoint throttles single calls at any rate, these wait and are
retried alone (see `lone_throttles`). Time limits are suspended while a call waits.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import TypeVarTuple

from apps.gym.calls.lone_throttles import ThrottleEvidence
from apps.gym.calls.memory_budget import parked
from apps.gym.calls.outbound import OutboundReply
from apps.gym.calls.rate_control import FIRST_PAUSE, IDLE_SECONDS, LONGEST_BACKOFF, Grant, Report
from apps.gym.calls.refusals import is_throttled, read_retry_after
from apps.gym.calls.time_limits import stopped_clocks

PATIENCE = 120.0
"""Maximum seconds that calls wait while the endpoint accepts none. Then they fail, to free their worker seats."""
BATCH_SECONDS = 0.02
"""Seconds to collect throttle replies, which arrive in bursts, before reporting."""
SPACING = 0.8
"""Minimum gap between two calls of one worker, as a fraction of the interval at the current rate."""
LONGEST_DELAY = 0.2
"""Starts that are later than this, in seconds, are dropped and requested again.

If the interval between calls is longer, it applies instead.
"""
TIMER_TOLERANCE_SECONDS = 0.005
_MAX_REMEMBERED_CALLS = 2_000
_CLAIM_AHEAD_SECONDS = 5.0
_MIN_CLAIM = 2


Arguments = TypeVarTuple("Arguments")


class EndpointPaused(Exception):
    """Raised when the endpoint accepts no calls for longer than the caller waits. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Gate:
    """The calls of this process to one endpoint. Not thread-safe: use it from a single event loop."""

    def __init__(self, on_limited: Callable[["Gate"], None]) -> None:
        self.limited = False
        self.message = ""
        self._on_limited = on_limited
        self._in_flight = 0
        self._sent: deque[float] = deque(maxlen=_MAX_REMEMBERED_CALLS)
        self._accepted = 0
        self._throttled: deque[float] = deque(maxlen=_MAX_REMEMBERED_CALLS)
        self._retry_after: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._starts: dict[int, asyncio.TimerHandle] = {}
        self._numbers = count()
        self._started_at = 0.0
        self._unused = 0  # starts that were due while the concurrency limit was reached
        self._cap: int | None = None
        self._rate = math.inf
        self._interval = 0.0
        self._paused_until = 0.0
        self._trying_since = 0.0
        self._activity = asyncio.Event()
        self._evidence = ThrottleEvidence()

    async def send(
        self,
        send: Callable[[*Arguments], Awaitable[OutboundReply]],
        read_message: Callable[[OutboundReply], str],
        *arguments: *Arguments,
        patience: float | None = None,
    ) -> OutboundReply:
        """Call `send(*arguments)`, and repeat it until its reply is not throttled. Return that reply.

        `read_message` extracts the message of a throttle reply. `patience` is the maximum total wait in
        seconds, over all repeats. Raise EndpointPaused and the errors of `send`.
        """
        waited = 0.0
        while True:
            if self.limited:
                began = time.monotonic()
                with stopped_clocks(), parked():
                    await self._wait(None if patience is None else patience - waited)
                waited += time.monotonic() - began
            else:
                self._in_flight += 1
            sent = time.monotonic()
            self._sent.append(sent)
            is_evidence = sent < self._evidence.until and not self.limited
            if is_evidence:
                self._evidence.add_sent()
            try:
                reply = await send(*arguments)
            finally:
                self._in_flight -= 1
                if self._unused:
                    self._use_starts()
            if reply.status not in (429, 503, 529) or not is_throttled(reply):
                self._accepted += 1
                return reply
            retry_after, message = read_retry_after(reply), read_message(reply)
            del reply  # Free the reply, which may be large, before a long wait.
            pause = retry_after if retry_after is not None else min(waited, LONGEST_BACKOFF)
            self._throttled.append(sent)
            if self._must_slow_down(sent, pause, is_evidence=is_evidence):
                self._slow_down(retry_after, message)
            else:
                waited += await self._wait_alone(pause, message, (PATIENCE if patience is None else patience) - waited)

    def _must_slow_down(self, sent: float, pause: float, *, is_evidence: bool) -> bool:
        """Take a throttle reply. Return True if all calls must slow down, False if this call may be retried alone."""
        if self.limited or pause > PATIENCE:
            return True
        return self._evidence.shows_rate_limit(
            sent, time.monotonic(), max(pause, FIRST_PAUSE), accepted=self._accepted, is_evidence=is_evidence
        )

    async def _wait_alone(self, pause: float, message: str, patience: float) -> float:
        """Wait before this call is repeated, while others go on. Return the seconds. Raises EndpointPaused."""
        if pause > patience:
            raise EndpointPaused(message, pause)
        began = time.monotonic()
        with stopped_clocks(), parked():
            await asyncio.sleep(max(pause, FIRST_PAUSE) * random.uniform(1.0, 1.2))
        return time.monotonic() - began

    @property
    def claimable(self) -> int:
        """Return how many more rollouts to claim, from an estimate of the calls that the endpoint will accept soon."""
        if self._paused_until > time.monotonic():
            return 0
        return max(0, math.ceil(self._rate * _CLAIM_AHEAD_SECONDS) + _MIN_CLAIM - len(self._waiting))

    def limit(self) -> None:
        """Start limiting calls, after this or another process was throttled."""
        if not self.limited:
            self.limited = True
            self._rate = 0.0
            self._evidence = ThrottleEvidence()
            self._on_limited(self)

    # -- reports and grants (see apps/rollouts/engine/throttling.py) ---------------------------------------------------

    def report(self) -> Report:
        """Return the observations since the last report."""
        now = time.monotonic()
        report = Report(
            sent=[now - at for at in self._sent if now - at < IDLE_SECONDS],
            throttled=[now - at for at in self._throttled if now - at < IDLE_SECONDS],
            retry_after=self._retry_after,
            accepted=self._accepted,
            in_flight=self._in_flight,
            wanted=max(0, len(self._waiting) - len(self._starts)),
            at_cap=self._unused > 0,
        )
        self._sent.clear()
        self._throttled.clear()
        self._retry_after, self._accepted = None, 0
        return report

    def apply(self, grant: Grant) -> None:
        """Schedule waiting calls at the granted start times."""
        now, loop = time.monotonic(), asyncio.get_running_loop()
        self._cap, self._rate, self._paused_until = grant.cap, grant.rate, now + grant.paused_for
        # Trial calls are granted one at a time, so each may start at once.
        self._interval = 0.0 if grant.is_trying else 1 / grant.rate
        if not grant.limited:
            self._end_limit()
            return
        self._trying_since = (self._trying_since or now) if grant.is_trying else 0.0
        if grant.paused_for > PATIENCE or (grant.is_trying and now - self._trying_since > PATIENCE):
            self._trying_since = 0.0
            self._fail_waiting()
        self._use_starts()
        for start in grant.starts:
            number = next(self._numbers)
            self._starts[number] = loop.call_later(start, self._start, number, now + start)

    async def wait_for_activity(self, seconds: float) -> None:
        """Wait until there is something to report, for at most `seconds`."""
        if not (self._waiting or self._in_flight):
            seconds = max(seconds, IDLE_SECONDS / 2)
        seconds *= random.uniform(0.6, 1.0)  # otherwise the first worker would take all starts of a slow endpoint
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._activity.wait()
                await asyncio.sleep(BATCH_SECONDS)
        self._activity.clear()

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def _wait(self, patience: float | None) -> None:
        """Wait for a start, and count this call as in flight. Raises EndpointPaused."""
        most = PATIENCE if patience is None else min(patience, PATIENCE)
        if self._paused_until - time.monotonic() > most:
            raise self._paused()
        if patience is None:
            await self._wait_for_start()
            return
        try:
            async with asyncio.timeout(patience):
                await self._wait_for_start()
        except TimeoutError:
            raise self._paused() from None

    def _paused(self) -> EndpointPaused:
        left = self._paused_until - time.monotonic()
        return EndpointPaused(self.message, left if left > 0 else None)

    async def _wait_for_start(self) -> None:
        start = asyncio.get_running_loop().create_future()
        self._waiting.append(start)
        if len(self._waiting) == 1:
            self._activity.set()
        try:
            await start
        except asyncio.CancelledError:
            if start.done() and not start.cancelled() and start.exception() is None:
                self._in_flight -= 1
                self._use_starts()
            elif start in self._waiting:
                self._waiting.remove(start)
            raise

    def _start(self, number: int, due: float) -> None:
        # A busy event loop runs several late timers at once, and a burst of calls would be throttled.
        now = time.monotonic()
        early = self._started_at + SPACING * self._interval - now
        if early > TIMER_TOLERANCE_SECONDS:
            self._starts[number] = asyncio.get_running_loop().call_later(early, self._start, number, due)
            return
        del self._starts[number]
        if self._interval and now - due > max(LONGEST_DELAY, self._interval):
            self._activity.set()
            return
        self._started_at = now
        if self._cap is not None and self._in_flight >= self._cap:
            self._unused += 1
        else:
            self._start_next()

    def _use_starts(self) -> None:
        while self._unused and (self._cap is None or self._in_flight < self._cap):
            self._unused -= 1
            self._start_next()

    def _start_next(self) -> None:
        while self._waiting:
            start = self._waiting.popleft()
            if not start.done():
                self._in_flight += 1
                start.set_result(None)
                return

    def _slow_down(self, retry_after: float | None, message: str) -> None:
        self.message = message
        if retry_after is not None:
            self._retry_after = max(retry_after, self._retry_after or 0.0)
            self._paused_until = max(self._paused_until, time.monotonic() + retry_after)
        self._drop_starts()
        self.limit()
        self._activity.set()

    def _end_limit(self) -> None:
        self.limited = False
        self._drop_starts()
        while self._waiting:
            self._start_next()

    def _drop_starts(self) -> None:
        for handle in self._starts.values():
            handle.cancel()
        self._starts.clear()
        self._unused = 0

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for start in waiting:
            if not start.done():
                start.set_exception(self._paused())
