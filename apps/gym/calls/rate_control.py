"""Find the request rate and the concurrency that an endpoint allows, from its throttle replies alone.

Additive increase, multiplicative decrease, as TCP CUBIC does it. After a throttle reply the ceiling is the rate of the
calls that were not throttled lately. The rate starts below the ceiling, returns to it, stays there for a while, and
then probes above it. Requests are spaced evenly: an endpoint with a window of one second must not see six requests
where it allows five. All times are seconds of one clock, the caller's.
"""

import math

import msgspec

DECREASE = 0.9
"""Part of the ceiling at which the rate starts again after a throttle reply."""
PLATEAU = 0.97
"""Part of the ceiling at which the rate stays before it probes."""
SMALLEST_CAP = 4
"""Where an endpoint takes fewer calls at once, the rate alone keeps to that."""
SAME = 0.15
"""Two ceilings that differ by no more than this part confirm each other."""
MOST_IN_VAIN = 4
REGAIN = 1.5
"""After so many decreases in a row that the next throttle reply did not wait for, the ceiling rises by this factor: an
endpoint that throttles now and then at any rate must not slow down without end."""
CONFIRMING = 0.9
"""A ceiling below this part of the last one is still on its way down."""
TRIAL_HOLD = 0.5
"""Seconds at the plateau of a ceiling that fewer than ENOUGH_TO_HOLD calls told: that may be far too low."""
UNCONFIRMED_HOLD = 2.0
"""Of the first ceiling: reports of a busy process come late, so that it may be half of what the endpoint allows."""
FIRST_HOLD = 8.0
LONGEST_HOLD = 60.0
"""Of a confirmed ceiling. They become LONGER times as many with each throttle reply that confirms it again."""
LONGER = 3.0
LONGEST_RECOVERY = 3.0
FASTEST_PROBE = 4.0
SLOWEST_PROBE = 20.0
"""Seconds of probing after which the rate has doubled: the more often the ceiling was confirmed, the more."""
ENOUGH = 10
"""Calls that tell a rate."""
ENOUGH_TO_HOLD = 5
TOLERANCE = 0.05
"""Seconds by which the age of a call may be off."""
FIRST_PAUSE = 0.25
LONGEST_BACKOFF = 5.0
"""Seconds of pause where the endpoint names none; they double while no call is accepted."""
TRIAL_SECONDS = 5.0
"""Between trial calls after a pause, until the endpoint accepts one."""
LONGEST_PAUSE = 900.0
"""A longer Retry-After is tried again after this time: some endpoints name a day and mean an hour."""
LARGEST_GROWTH = 3.0
"""Probe times after which the rate grows no more, at 28 times the plateau."""
QUIET_SECONDS = 30.0
LONGEST_QUIET = 300.0
"""After so long without a throttle reply the endpoint counts as unlimited again: the shorter time once the rate has
grown as far as it grows, the longer one while no call was accepted."""
IDLE_SECONDS = 10.0
"""After so long without a report, earlier calls say nothing about the rate."""
LOOKAHEAD_SECONDS = 1.0
"""Starts are handed out at most so far ahead."""
STALE_SECONDS = 10.0
"""A holder that has not reported for so long counts as gone, with its calls in flight."""
_BUCKETS = 100


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one holder (a worker) has seen since its last report. Ages are seconds before the report.

    `sent` and `throttled` are the ages at which calls were sent; each throttled call is in both, the former perhaps in
    an earlier report. `retry_after` is the longest that was asked for. `in_flight` counts calls under way, `wanted`
    calls that wait for a start. `at_cap` says that a start could not be used, since as many calls as allowed are
    under way.
    """

    sent: list[float] = []
    throttled: list[float] = []
    retry_after: float | None = None
    accepted: int = 0
    in_flight: int = 0
    wanted: int = 0
    at_cap: bool = False


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """`starts` are seconds from now at which one call each may start, while fewer than `cap` of this holder's calls are
    under way. `is_trying` says that the endpoint has taken no call since it throttled. `rate` is in requests a second.
    `paused_for` and `report_in`, which says when to ask again, are seconds.
    """

    limited: bool = True
    is_trying: bool = False
    starts: list[float] = []
    cap: int | None = None
    rate: float = math.inf
    paused_for: float = 0.0
    report_in: float = 1.0


class RateControl(msgspec.Struct, kw_only=True):
    """The state of one endpoint, shared by all holders. `ceiling` is None until a call was accepted.

    `recent` counts calls that were sent and not throttled, by tenths of a second. `refusals` counts pauses in a row
    without an accepted call. `holders` have their calls in flight and when they reported.
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
    next_at: float = 0.0
    reported_at: float = 0.0
    recent: list[tuple[float, int]] = []
    holders: dict[str, tuple[int, float]] = {}

    def exchange(self, holder: str, report: Report, now: float) -> Grant:
        """Take in a report and hand out starts."""
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
        """Requests a second that may start now, pauses aside."""
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
        """Whether single calls try out when the endpoint takes calls again."""
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
        """How much slower all goes at a low rate, where a few calls take long."""
        return max(1.0, 2.0 / (self.ceiling or 2.0))

    # -- calls ----------------------------------------------------------------------------------------------------

    def _count(self, report: Report, now: float) -> None:
        counts = dict(self.recent)
        for age in report.sent:
            at = round(now - age, 1)
            counts[at] = counts.get(at, 0) + 1
        for age in report.throttled:
            # The ages of two reports may differ by a little.
            if not counts:
                break
            nearest = min(counts, key=lambda known: abs(known - now + age))
            if left := counts.pop(nearest) - 1:
                counts[nearest] = left
        self.recent = sorted(counts.items())[-_BUCKETS:]

    def _sent_rate(self) -> tuple[float, int]:
        """Return the calls a second up to the throttle reply, and how many calls tell it.

        That is the rate over the horizon, or over the last calls where those took longer.
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
        # Nothing is sent in a pause, which says nothing about the rate.
        span = end - began - (self.pause if began < self.resumed_at else 0.0)
        return max(1, total) / max(self.horizon, span), total

    # -- throttle replies -----------------------------------------------------------------------------------------

    def _take_throttle(self, report: Report, now: float) -> None:
        # Only a call that was sent after the last pause says anything new: the others were on their way.
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
        """At the end of a pause all calls that it met have been answered: what the endpoint allows can be told."""
        self.is_settled = True
        if not any(at > self.resumed_at - TOLERANCE for at, _ in self.recent):
            self.refusals += 1
            return
        self.refusals = 0
        found, calls = self._sent_rate()
        if self.ceiling is None:
            self.hold = UNCONFIRMED_HOLD if calls >= ENOUGH_TO_HOLD else TRIAL_HOLD
        else:
            # While the rate rises, the mean of the last calls lags behind it.
            found = min(self.rate_before, (found + min(self.rate_before, 2 * found)) / 2)
            self.vain = self.vain + 1 if self.rate_before <= self.ceiling else 0
            if self.vain > MOST_IN_VAIN:
                found, self.vain = REGAIN * self.ceiling, 0
            is_same_rate = abs(found - self.ceiling) <= SAME * self.ceiling
            if not is_same_rate:
                self.hold = FIRST_HOLD
            elif found >= CONFIRMING * self.ceiling:
                self.hold = max(FIRST_HOLD, min(LONGEST_HOLD, LONGER * self.hold))
            else:
                self.hold = max(FIRST_HOLD, self.hold / 2)
            self._settle_cap(is_same_rate)
        self.ceiling, self.taken_before = found, self.taken

    def _settle_cap(self, is_same_rate: bool) -> None:
        """Limit the concurrency where the endpoint always takes as many calls at once, at whatever rate."""
        is_same_number = abs(self.taken - self.taken_before) <= max(1, SAME * self.taken)
        if self.cap is not None and self.taken < (1 - SAME) * self.cap - 1:
            self.cap = None  # throttled below it: the rate was the limit
        elif self.taken >= SMALLEST_CAP and is_same_number and (self.cap is not None or not is_same_rate):
            self.cap = float(self.taken)

    # -- concurrency ----------------------------------------------------------------------------------------------

    def _grow_cap(self, now: float) -> None:
        """By a tenth each second, once it was held for a while."""
        if self.cap is not None and now - self.growing_since > self._recovery + self._holding:
            self.cap += max(1.0, 0.1 * self.cap) * min(1.0, now - self.reported_at)

    # -- starts ---------------------------------------------------------------------------------------------------

    def _grant(self, holder: str, report: Report, now: float) -> Grant:
        self.next_at = max(self.next_at, self.paused_until, now)
        # While paused nothing is handed out ahead: the rate afterwards is not known yet.
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
            # The reply to a trial call is wanted at once.
            wait = LOOKAHEAD_SECONDS / 4
            if not self.is_trying:
                wait = max(wait, self.next_at - now - LOOKAHEAD_SECONDS / 2)
        return Grant(
            starts=starts,
            cap=cap,
            is_trying=self.is_trying,
            rate=self.rate(now),
            paused_for=max(0.0, self.paused_until - now),
            report_in=min(wait, TRIAL_SECONDS),
        )
