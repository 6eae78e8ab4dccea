"""The gate in front of an endpoint: when calls start, and when they give up."""

import asyncio
import random
import time
from collections import Counter

import pytest

from apps.gym.calls.flow_control import EndpointPaused, Gate
from apps.gym.calls.rate_control import Grant


async def never_sent():
    raise AssertionError("the endpoint takes no calls")


@pytest.mark.parametrize("is_trying", [True, False])
def test_calls_give_up_on_an_endpoint_that_takes_none_for_long(monkeypatch, is_trying):
    monkeypatch.setattr("apps.gym.calls.flow_control.PATIENCE", 0.05)

    async def work():
        gate = Gate(lambda _: None)
        gate.limit()
        call = asyncio.create_task(gate.send(never_sent, str))
        for _ in range(2):
            await asyncio.sleep(0.1)
            assert not call.done()
            gate.apply(Grant(is_trying=is_trying))
        if is_trying:
            with pytest.raises(EndpointPaused):
                await call
        else:
            await asyncio.sleep(0)
            assert not call.done()
            call.cancel()

    asyncio.run(work())


async def answered():
    return Reply()


class Reply:
    def __init__(self, status=200, headers=()):
        self.status, self.headers, self.body = status, dict(headers), b""


def test_a_trial_call_starts_when_it_is_granted_whatever_the_rate():
    async def work():
        gate = Gate(lambda _: None)
        gate.limit()
        for _ in range(2):
            call = asyncio.create_task(gate.send(answered, str))
            await asyncio.sleep(0)
            gate.apply(Grant(is_trying=True, rate=0.2, starts=[0.0]))
            await asyncio.wait_for(call, 2.0)

    asyncio.run(work())


def test_starts_that_come_too_late_are_dropped_and_requested_again():
    async def work():
        gate = Gate(lambda _: None)
        gate.limit()
        calls = [asyncio.create_task(gate.send(answered, str)) for _ in range(5)]
        await asyncio.sleep(0)
        assert gate.report().wanted == 5
        gate.apply(Grant(rate=20.0, starts=[0.0, 0.05, 0.1, 0.15, 0.2]))
        asyncio.get_running_loop().call_soon(time.sleep, 0.5)
        await asyncio.sleep(0.1)
        assert [call.done() for call in calls] == [False] * 5
        assert gate.report().wanted == 5
        gate.apply(Grant(rate=20.0, starts=[0.0, 0.05, 0.1, 0.15, 0.2]))
        await asyncio.wait_for(asyncio.gather(*calls), 2.0)

    asyncio.run(work())


class Server:
    """An endpoint in this process: calls take `seconds`, and `throttles(now)` says which of them get 429."""

    def __init__(self, throttles, *, seconds=0.02, retry_after="0.3"):
        self.throttles, self.seconds, self.retry_after = throttles, seconds, retry_after
        self.accepted = self.throttled = 0

    async def answer(self):
        now = asyncio.get_running_loop().time()
        if self.throttles(now):
            self.throttled += 1
            return Reply(429, {"Retry-After": self.retry_after} if self.retry_after else {})
        await asyncio.sleep(self.seconds)
        self.accepted += 1
        return Reply()


def load(server, *, callers, seconds):
    """Call the server without a pause. Return whether the gate slowed all calls down, and the largest rate."""

    async def call(gate, until):
        loop = asyncio.get_running_loop()
        while loop.time() < until and not gate.limited:
            await gate.send(server.answer, str, patience=None)

    async def work():
        limited = []
        gate = Gate(limited.append)
        until = asyncio.get_running_loop().time() + seconds
        calls = [asyncio.create_task(call(gate, until)) for _ in range(callers)]
        _, pending = await asyncio.wait(calls, timeout=seconds + 2)
        for one in pending:
            one.cancel()
        return bool(limited)

    return asyncio.run(work())


def at_random(share):
    draw = random.Random(7).random
    return lambda now: draw() < share


def in_window(number):
    """A rate limit: at most `number` calls in each half second."""
    taken = Counter()

    def throttles(now):
        taken[int(now * 2)] += 1
        return taken[int(now * 2)] > number

    return throttles


@pytest.mark.parametrize("share", [0.01, 0.08, 0.2])
@pytest.mark.parametrize(("callers", "retry_after"), [(6, "0.3"), (24, "0.3"), (24, None)])
def test_an_endpoint_that_throttles_at_random_is_not_called_more_slowly(share, callers, retry_after):
    server = Server(at_random(share), retry_after=retry_after)
    assert not load(server, callers=callers, seconds=2)
    # Each accepted call takes 20 ms and each throttled one 0.3 s; half of the rest is allowed for a busy machine.
    expected = callers * 2 / (0.02 + share / (1 - share) * 0.33)
    assert server.accepted >= 0.5 * expected
    assert server.throttled > 0


@pytest.mark.parametrize("throttles", [lambda now: True, at_random(0.8)], ids=["all", "most"])
@pytest.mark.parametrize("callers", [1, 6, 24])
def test_an_endpoint_that_throttles_most_calls_slows_all_down(throttles, callers):
    assert load(Server(throttles, seconds=0.005), callers=callers, seconds=5)


@pytest.mark.parametrize("number", [5, 20])
@pytest.mark.parametrize("callers", [1, 6, 24])
def test_a_rate_limit_slows_all_calls_down_unless_its_rate_is_used_anyway(number, callers):
    server = Server(in_window(number), seconds=0.005)
    is_limited = load(server, callers=callers, seconds=4)
    assert is_limited or server.accepted >= 0.85 * number * 8


def test_a_pause_that_is_longer_than_calls_wait_slows_all_calls_down():
    assert load(Server(at_random(0.05), retry_after="600"), callers=24, seconds=5)
