"""Determine the request rate and concurrency that an endpoint allows, from its throttle replies alone.

The rate follows additive increase and multiplicative decrease, similar to TCP CUBIC. After a throttle reply, the
ceiling is set to the recent rate of accepted calls. The rate restarts below the ceiling, recovers to a plateau just
below it, stays there for a while, and then probes above it.

Requests are evenly spaced: an endpoint that allows five requests per one-second window must not receive six. All times
are in seconds on the caller's clock.
"""

import math

import msgspec

DECREASE = 0.9
"""Fraction of the ceiling at which the rate restarts after a throttle reply."""
PLATEAU = 0.97
"""Fraction of the ceiling at which the rate stays before it probes."""
SMALLEST_CAP = 4
"""Smallest concurrency limit. Below it, limiting the rate is enough."""
SAME = 0.15
"""Two ceilings confirm each other if they differ by at most this fraction."""
MOST_IN_VAIN = 4
REGAIN = 1.5
MORE_CALLS = 2.0
"""Undo decreases that do not help: after more than MOST_IN_VAIN of them in a row, multiply the ceiling by REGAIN.

A decrease helps if it allows MORE_CALLS times as many calls between two throttle replies. Without this rule, an
endpoint that throttles occasionally at any rate would become ever slower.
"""
QUICK_DECREASE = 0.9
"""Lower bound of the factor of a second decrease in quick succession."""
QUICK_HOLD = 4.0
"""Seconds at the plateau after a second decrease in quick succession, which may have set the ceiling too low."""
CONFIRMING = 0.9
"""A ceiling below this fraction of the previous one is still falling."""
TRIAL_HOLD = 0.5
"""Seconds at the plateau when fewer than ENOUGH_TO_HOLD calls determined the ceiling, which may be far too low."""
UNCONFIRMED_HOLD = 2.0
"""Seconds at the plateau of the first ceiling. Reports of a busy process are late, so it may be half the real limit."""
FIRST_HOLD = 8.0
LONGEST_HOLD = 60.0
"""Longest plateau of a confirmed ceiling, in seconds.

Each throttle reply that confirms the ceiling multiplies the plateau by LONGER.
"""
LONGER = 3.0
LONGEST_RECOVERY = 3.0
FASTEST_PROBE = 4.0
SLOWEST_PROBE = 20.0
"""Range of the seconds in which probing doubles the rate. Each confirmation of the ceiling makes probing slower."""
ENOUGH = 10
"""Number of calls needed to measure a rate."""
ENOUGH_TO_HOLD = 5
TOLERANCE = 0.05
"""Maximum error of a call's age, in seconds."""
FIRST_PAUSE = 0.25
LONGEST_BACKOFF = 5.0
"""Range of the pause in seconds if the endpoint does not request one. It doubles until a call is accepted."""
TRIAL_SECONDS = 5.0
"""Seconds between trial calls after a pause, until the endpoint accepts one."""
LONGEST_PAUSE = 900.0
"""Longest pause in seconds, even if Retry-After is longer: some endpoints request a day when an hour is enough."""
LARGEST_GROWTH = 3.0
"""Number of probe times after which the rate stops growing, at 28 times the plateau."""
QUIET_SECONDS = 30.0
LONGEST_QUIET = 300.0
"""Seconds without a throttle reply after which the endpoint counts as unlimited again.

The shorter time applies if the rate has reached its maximum, the longer one while no call was accepted.
"""
IDLE_SECONDS = 10.0
"""Seconds without a report after which earlier calls no longer count for the rate."""
LOOKAHEAD_SECONDS = 1.0
"""Starts are assigned at most this many seconds ahead."""
SOONEST_REPORT = 0.02
"""Minimum seconds between two reports."""
STALE_SECONDS = 10.0
"""Seconds without a report after which a holder and its calls in flight are dropped."""
_BUCKETS = 100


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of one holder (a worker) since its last report. Ages are in seconds.

    `sent` and `throttled` are ages of calls, from when they were sent; a throttled call is in both, possibly in `sent`
    of an earlier report. `retry_after` is the longest requested wait. `in_flight` counts running calls, `wanted` calls
    waiting for a start. `at_cap` is True if a start could not be used because of the concurrency limit.
    """

    sent: list[float] = []
    throttled: list[float] = []
    retry_after: float | None = None
    accepted: int = 0
    in_flight: int = 0
    wanted: int = 0
    at_cap: bool = False


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Starts assigned to one holder.

    `starts` are in seconds from now. A call may start at each, while fewer than `cap` calls of the holder are running.
    `is_trying` is True while the endpoint has accepted no call since it throttled. `rate` is in requests per second.
    `paused_for` and `report_in` (time until the next report) are in seconds.
    """

    limited: bool = True
    is_trying: bool = False
    starts: list[float] = []
    cap: int | None = None
    rate: float = math.inf
    paused_for: float = 0.0
    report_in: float = 1.0


class RateControl(msgspec.Struct, kw_only=True):
    """State of one endpoint, shared by all holders.

    `ceiling` is None until a call is accepted. `recent` counts accepted calls by tenths of a second. `refusals` counts
    consecutive pauses without an accepted call. `holders` maps each holder to its calls in flight and the time of its
    last report.
    """

    ceiling: float | None = None
    hold: float = FIRST_HOLD
    cap: float | None = None
    taken: int = 0
    taken_before: int = 0
    throttled_at: float = 0.0
    paused_until: float = 0.0
    resumed_at: float = 0.0
    growing_since: float = 0.0
    is_settled: bool = True
    pause: float = 0.0
    rate_before: float = 0.0
    horizon: float = 1.0
    refusals: int = 0
    vain: int = 0
    calls_before: int = 0
    next_at: float = 0.0
    reported_at: float = 0.0
    recent: list[tuple[float, int]] = []
    holders: dict[str, tuple[int, float]] = {}

    def exchange(self, holder: str, report: Report, now: float) -> Grant:
        """Record a report and return the starts for its holder."""
        if now - self.reported_at > IDLE_SECONDS:
            self.recent = []
        self._count(report, now)
        if report.at_cap:
            self._grow_cap(now)
        self.reported_at = now
        self.holders[holder] = (report.in_flight, now)
        self.holders = {one: seen for one, seen in self.holders.items() if now - seen[1] < STALE_SECONDS}
        if report.throttled:
            self._take_throttle(report, now)
        if now >= self.limited_until:
            return Grant(limited=False)
        if not self.is_settled and now >= self.paused_until:
            self._settle()
        if report.accepted and self.is_settled and self.refusals:
            if self.ceiling is None:
                self.ceiling, self.hold = self._sent_rate()[0], TRIAL_HOLD
            # Trials are part of the pause, which lasted until the accepted call was sent.
            self.paused_until = max([self.paused_until, *(at for at, _ in self.recent[-1:])])
            self.refusals, self.growing_since = 0, now
            self.next_at = now + 1 / self.rate(now)
        return self._grant(holder, report, now)

    @property
    def limited_until(self) -> float:
        if not self.throttled_at:
            return 0.0
        if self.is_trying:
            return self.paused_until + LONGEST_QUIET
        growing = self._recovery + self._holding + LARGEST_GROWTH * self._probe
        return self.growing_since + max(QUIET_SECONDS, growing)

    def rate(self, now: float) -> float:
        """Return the current rate in requests per second, ignoring pauses."""
        if self.is_trying or self.ceiling is None:
            return 1 / TRIAL_SECONDS
        since = max(0.0, now - self.growing_since)
        low, plateau, recovery = DECREASE * self.ceiling, PLATEAU * self.ceiling, self._recovery
        if since < recovery:
            return low + (plateau - low) * since / recovery
        probing = max(0.0, since - recovery - self._holding)
        return plateau * (1.0 + min(LARGEST_GROWTH, probing / self._probe) ** 3)

    @property
    def is_trying(self) -> bool:
        """Return True while single trial calls test whether the endpoint accepts calls again."""
        return self.refusals > 0 or self.ceiling is None

    @property
    def in_flight(self) -> int:
        return sum(number for number, _ in self.holders.values())

    @property
    def _recovery(self) -> float:
        return min(LONGEST_RECOVERY, self.hold) * self._scale

    @property
    def _holding(self) -> float:
        return self.hold * self._scale

    @property
    def _probe(self) -> float:
        return min(SLOWEST_PROBE, FASTEST_PROBE * self.hold) * self._scale

    @property
    def _scale(self) -> float:
        """Return the factor that stretches all times at low rates, at which even a few calls take long."""
        return max(1.0, 2.0 / (self.ceiling or 2.0))

    # -- calls ----------------------------------------------------------------------------------------------------

    def _count(self, report: Report, now: float) -> None:
        counts = dict(self.recent)
        for age in report.sent:
            at = round(now - age, 1)
            counts[at] = counts.get(at, 0) + 1
        for age in report.throttled:
            # The same call may have slightly different ages in two reports.
            if not counts:
                break
            nearest = min(counts, key=lambda known: abs(known - now + age))
            if left := counts.pop(nearest) - 1:
                counts[nearest] = left
        self.recent = sorted(counts.items())[-_BUCKETS:]

    def _sent_rate(self) -> tuple[float, int]:
        """Return the rate before the throttle reply, in calls per second, and the number of calls measured.

        It covers the horizon, or the last ENOUGH calls if those took longer.
        """
        end = self.throttled_at
        before = [(at, count) for at, count in self.recent if at <= end + TOLERANCE]
        within = sum(count for at, count in before if at > end - self.horizon)
        if within >= ENOUGH:
            return within / self.horizon, within
        total, began = 0, end
        for at, count in reversed(before):
            total, began = total + count, at
            if total >= ENOUGH:
                break
        # Pauses do not count, because nothing is sent.
        span = end - began - (self.pause if began < self.resumed_at else 0.0)
        return max(1, total) / max(self.horizon, span), total

    # -- throttle replies -----------------------------------------------------------------------------------------

    def _take_throttle(self, report: Report, now: float) -> None:
        # Only calls sent after the last pause are new information: the others were already in flight.
        if now - min(report.throttled) > self.paused_until - TOLERANCE:
            self.pause, self.rate_before = max(0.0, self.paused_until - self.throttled_at), self.rate(now)
            self.throttled_at, self.horizon, self.is_settled = now, 1.0, False
            self.resumed_at, self.next_at = self.paused_until, 0.0
            self.growing_since = self.paused_until = now + min(
                LONGEST_BACKOFF, FIRST_PAUSE * 2.0 ** min(self.refusals, 10)
            )
        self.taken = self.in_flight
        if report.retry_after is not None:
            self.horizon = max(self.horizon, min(60.0, report.retry_after))
            self.growing_since = self.paused_until = max(
                self.paused_until, now + min(report.retry_after, LONGEST_PAUSE)
            )

    def _settle(self) -> None:
        """Update the ceiling at the end of a pause, when all calls that were in flight have been answered."""
        self.is_settled = True
        if not any(at > self.resumed_at - TOLERANCE for at, _ in self.recent):
            self.refusals += 1
            return
        self.refusals = 0
        found, calls = self._sent_rate()
        if self.ceiling is None:
            self.hold = UNCONFIRMED_HOLD if calls >= ENOUGH_TO_HOLD else TRIAL_HOLD
        else:
            # While the rate rises, the mean rate of the last calls is too low.
            measured = found = min(self.rate_before, (found + min(self.rate_before, 2 * found)) / 2)
            is_early = self.rate_before <= self.ceiling
            self.vain = self.vain + 1 if is_early else 0
            if is_early:
                found = self._decreased(self.ceiling, measured)
            is_same_rate = abs(found - self.ceiling) <= SAME * self.ceiling
            if found < measured:
                self.hold = QUICK_HOLD
            elif not is_same_rate:
                self.hold = FIRST_HOLD
            elif found >= CONFIRMING * self.ceiling:
                self.hold = max(FIRST_HOLD, min(LONGEST_HOLD, LONGER * self.hold))
            else:
                self.hold = max(FIRST_HOLD, self.hold / 2)
            self._settle_cap(is_same_rate)
        self.ceiling, self.taken_before = found, self.taken

    def _decreased(self, ceiling: float, found: float) -> float:
        """Return the next ceiling after a throttle reply below `ceiling`.

        Right after a pause, an endpoint may accept more calls than it allows in the long run, so `found` may be too
        high. The mean rate since the previous throttle reply, including the pause, is a lower bound.
        """
        recent = ((at, count) for at, count in self.recent if at <= self.throttled_at + TOLERANCE)
        calls = sum(count for at, count in recent if at > self.resumed_at - TOLERANCE)
        seconds = self.throttled_at - self.resumed_at
        if self.vain == 1:
            self.calls_before = calls
        elif self.vain > MOST_IN_VAIN and calls < MORE_CALLS * self.calls_before:
            self.vain = 0
            return REGAIN * ceiling
        elif seconds < self._recovery:
            return max(QUICK_DECREASE * found, (found + min(found, calls / (seconds + self.pause))) / 2)
        return found

    def _settle_cap(self, is_same_rate: bool) -> None:
        """Limit the concurrency if the endpoint accepts the same number of concurrent calls at any rate."""
        is_same_number = abs(self.taken - self.taken_before) <= max(1, SAME * self.taken)
        if self.cap is not None and self.taken < (1 - SAME) * self.cap - 1:
            self.cap = None  # throttled below the cap, so the rate was the limit
        elif self.taken >= SMALLEST_CAP and is_same_number and (self.cap is not None or not is_same_rate):
            self.cap = float(self.taken)

    # -- concurrency ----------------------------------------------------------------------------------------------

    def _grow_cap(self, now: float) -> None:
        """Increase the cap by a tenth per second, after a plateau."""
        if self.cap is not None and now - self.growing_since > self._recovery + self._holding:
            self.cap += max(1.0, 0.1 * self.cap) * min(1.0, now - self.reported_at)

    # -- starts ---------------------------------------------------------------------------------------------------

    def _grant(self, holder: str, report: Report, now: float) -> Grant:
        self.next_at = max(self.next_at, self.paused_until, now)
        # Nothing is assigned ahead of a pause, because the rate after it is unknown.
        until = now + LOOKAHEAD_SECONDS if self.is_settled else now
        wanted = 0 if report.at_cap else report.wanted
        starts: list[float] = []
        while len(starts) < wanted and self.next_at < until:
            starts.append(self.next_at - now)
            self.next_at += 1 / self.rate(self.next_at)
        others = self.in_flight - report.in_flight
        cap = None if self.cap is None else max(1, int(self.cap) - others)
        wait = self.paused_until - now
        if self.is_settled:
            # Report the reply to a trial call as soon as possible.
            wait = LOOKAHEAD_SECONDS / 4
            if not self.is_trying:
                wait = max(wait, self.next_at - now - LOOKAHEAD_SECONDS / 2)
        return Grant(
            starts=starts,
            cap=cap,
            is_trying=self.is_trying,
            rate=self.rate(now),
            paused_for=max(0.0, self.paused_until - now),
            report_in=max(SOONEST_REPORT, min(wait, TRIAL_SECONDS)),
        )
