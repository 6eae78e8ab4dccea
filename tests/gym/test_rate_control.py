"""The rate control against simulated endpoints, with a clock of its own: it finds what each of them allows."""

import heapq
import random
from itertools import count, pairwise

import pytest

from apps.gym.calls.rate_control import LONGEST_PAUSE, RateControl, Report


class FixedWindow:
    """`number` calls in each window of so many seconds."""

    def __init__(self, number, window, *, retry_after=None, latency=0.05):
        self.number, self.window, self.retry_after, self.latency = number, window, retry_after, latency
        self.current, self.taken = None, 0
        self.allowed = number / window

    def takes(self, now):
        if now // self.window != self.current:
            self.current, self.taken = now // self.window, 0
        self.taken += 1
        return self.taken <= self.number

    def end(self):
        pass


class Bucket:
    """A bucket of `burst` tokens that is filled at `rate`."""

    def __init__(self, rate, burst, *, retry_after=None, latency=0.05):
        self.allowed, self.burst, self.retry_after, self.latency = rate, burst, retry_after, latency
        self.tokens, self.at = float(burst), 0.0

    def takes(self, now):
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.allowed)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def end(self):
        pass


class Concurrent:
    """At most `number` calls at once."""

    def __init__(self, number, latency, *, retry_after=None):
        self.number, self.latency, self.retry_after = number, latency, retry_after
        self.busy = 0
        self.allowed = number / latency

    def takes(self, now):
        if self.busy == self.number:
            return False
        self.busy += 1
        return True

    def end(self):
        self.busy -= 1


class Holder:
    """A worker as flow_control.Gate is one, without tasks."""

    def __init__(self):
        self.waiting = self.in_flight = self.unused = self.epoch = self.accepted = 0
        self.sent, self.throttled = [], []
        self.cap = None

    def has_room(self):
        return self.cap is None or self.in_flight < self.cap


def simulate(server, *, calls=300, callers=200, holders=1, seed=0, began=0.0):
    """The times at which calls were accepted, and how many were throttled. The first calls are sent at `began`."""
    draw, control, order, events = random.Random(seed), RateControl(), count(), []
    workers = [Holder() for _ in range(holders)]
    accepted, throttled, left = [], 0, calls - callers

    def at(moment, kind, worker, *given):
        heapq.heappush(events, (moment, next(order), kind, worker, given))

    def exchange(worker, now):
        grant = control.exchange(
            str(workers.index(worker)),
            Report(
                sent=[now - sent for sent in worker.sent],
                throttled=[now - sent for sent in worker.throttled],
                retry_after=server.retry_after if worker.throttled else None,
                accepted=worker.accepted,
                in_flight=worker.in_flight,
                wanted=worker.waiting,
                at_cap=worker.unused > 0,
            ),
            now,
        )
        worker.sent, worker.throttled, worker.accepted, worker.cap = [], [], 0, grant.cap
        for start in grant.starts:
            at(now + start + 0.01 * draw.random(), "start", worker, worker.epoch)
        return grant.report_in

    for number in range(callers):
        worker = workers[number % holders]
        worker.in_flight += 1
        at(began + 0.1 * draw.random(), "send", worker)
    for worker in workers:
        at(began + 0.15, "exchange", worker)
    while len(accepted) < calls:
        now, _, kind, worker, given = heapq.heappop(events)
        if kind == "start" and given[0] == worker.epoch and worker.waiting:
            worker.unused += 1
        elif kind == "send":
            worker.sent.append(now)
            takes = server.takes(now)
            at(now + (server.latency if takes else 0.01), "accept" if takes else "throttle", worker, now)
        elif kind == "accept":
            server.end()
            worker.in_flight -= 1
            worker.accepted += 1
            accepted.append(now)
            worker.waiting += left > 0
            left -= 1
        elif kind == "throttle":
            throttled += 1
            worker.in_flight -= 1
            worker.waiting += 1
            worker.throttled.append(given[0])
            worker.epoch, worker.unused = worker.epoch + 1, 0
            at(now + 0.01, "news", worker)
        elif kind == "exchange":
            at(now + exchange(worker, now) * draw.uniform(0.6, 1.0), "exchange", worker)
        elif kind == "news" and worker.throttled:
            exchange(worker, now)
        while worker.unused and worker.waiting and worker.has_room():
            worker.unused, worker.waiting = worker.unused - 1, worker.waiting - 1
            worker.in_flight += 1
            at(now, "send", worker)
    return accepted, throttled


CASES = {
    "five in a second, Retry-After 1": (lambda: FixedWindow(5, 1, retry_after=1.0), {}),
    "five in a second, three workers": (lambda: FixedWindow(5, 1, retry_after=1.0), {"holders": 3}),
    "five in a second, no Retry-After": (lambda: FixedWindow(5, 1), {}),
    "five in a second, slow replies": (lambda: FixedWindow(5, 1, retry_after=1.0, latency=2.0), {"calls": 400}),
    "sixty in a minute": (lambda: FixedWindow(60, 60, retry_after=5.0), {"calls": 400}),
    "one in five seconds": (lambda: FixedWindow(1, 5), {"calls": 40, "callers": 20}),
    "token bucket": (lambda: Bucket(5, 5, retry_after=1.0), {}),
    "token bucket with a large burst": (lambda: Bucket(5, 60, retry_after=1.0), {"calls": 400}),
    "slow token bucket": (lambda: Bucket(0.2, 1), {"calls": 100, "callers": 20}),
    "eight at once": (lambda: Concurrent(8, 1.0), {"calls": 400}),
    "one at once": (lambda: Concurrent(1, 1.0), {"calls": 100, "callers": 50}),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case)
@pytest.mark.parametrize("seed", range(3))
def test_nearly_all_that_an_endpoint_allows_is_used_with_few_throttle_replies(case, seed):
    make, given = CASES[case]
    server = make()
    accepted, throttled = simulate(server, seed=seed, **given)
    first = len(accepted) // 10
    rate = (len(accepted) - first) / (accepted[-1] - accepted[first])
    assert rate >= 0.85 * server.allowed
    # All callers at once find the limit; from then on throttle replies are rare.
    callers = given.get("callers", 200)
    assert throttled - callers <= 0.2 * len(accepted) + 15


@pytest.mark.parametrize("holders", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_a_first_burst_over_the_end_of_a_window_is_soon_corrected(holders, seed):
    # The endpoint accepts five calls before the end of a window and five after it: the first ceiling is twice the rate.
    accepted, _ = simulate(FixedWindow(5, 1, retry_after=1.0), holders=holders, seed=seed, began=0.95)
    assert (len(accepted) - 1) / (accepted[-1] - accepted[0]) >= 0.85 * 5


def test_a_closed_endpoint_gets_single_calls_and_each_retry_after_is_kept():
    control, now, trials = RateControl(), 1000.0, []
    control.exchange("a", Report(sent=[0.1] * 50, throttled=[0.1] * 50, retry_after=1.0, wanted=50), now)
    while now < 1060.0:
        grant = control.exchange("a", Report(wanted=50), now)
        for start in grant.starts:
            trials.append(now + start)
            now += start + 0.1
            control.exchange("a", Report(sent=[0.1], throttled=[0.1], retry_after=1.0, wanted=50), now)
        now += max(grant.report_in, 0.01)
    gaps = [later - earlier for earlier, later in pairwise(trials)]
    assert 8 <= len(trials) <= 30
    assert min(gaps) >= 1.0


def test_a_retry_after_of_hours_is_tried_again_earlier():
    control = RateControl()
    grant = control.exchange("a", Report(sent=[0.1], throttled=[0.1], retry_after=86_400.0, wanted=1), 1000.0)
    assert (grant.starts, grant.paused_for) == ([], LONGEST_PAUSE)
    later = control.exchange("a", Report(wanted=3), 1001.0 + LONGEST_PAUSE)
    assert len(later.starts) == 1


def test_an_endpoint_that_is_quiet_for_long_counts_as_unlimited_again():
    control = RateControl()
    control.exchange("a", Report(sent=[0.1] * 9, throttled=[0.1], wanted=1), 1000.0)
    assert control.exchange("a", Report(wanted=1), 1001.0).limited
    assert not control.exchange("a", Report(wanted=1), 2000.0).limited


def test_many_throttle_replies_of_one_burst_are_one_decrease():
    control = RateControl()
    control.exchange("a", Report(sent=[0.1] * 60, throttled=[0.1] * 20, retry_after=1.0), 1000.0)
    control.exchange("a", Report(throttled=[0.15] * 20, retry_after=1.0), 1000.05)
    control.exchange("a", Report(wanted=5), 1001.1)
    assert control.ceiling == pytest.approx(20.0)


@pytest.mark.parametrize(("accepted", "seconds"), [(1, 12.0), (5, 16.0)])
def test_a_first_ceiling_that_is_far_too_low_is_left_soon(accepted, seconds):
    control = RateControl()
    # Of ten calls that an endpoint of five a second took, a late report tells of some.
    sent = [0.9] * accepted + [0.1] * 50
    control.exchange("a", Report(sent=sent, throttled=[0.1] * 50, retry_after=1.0, wanted=500), 100.0)
    found = control.exchange("a", Report(sent=[0.2], accepted=1, wanted=500), 101.3).rate
    assert found <= max(1, accepted)
    assert control.rate(101.0 + seconds) >= min(5.0, 2 * accepted)


def test_a_confirmed_ceiling_is_held():
    control, now = RateControl(), 100.0
    for _ in range(2):
        sent = [age / 5 for age in range(10, 0, -1)]
        control.exchange("a", Report(sent=[*sent, 0.1], throttled=[0.1], retry_after=1.0, wanted=500), now)
        control.exchange("a", Report(sent=[0.1], accepted=1, wanted=500), now + 1.2)
        now += 12.0
    assert control.hold >= 8.0
