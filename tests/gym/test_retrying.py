"""Retries end: by success, by the number of tries, by a time limit, or because the server asks for too long."""

import asyncio
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from apps.gym.calls.retries import Pauses, TryAgain, call_with_retries, parse_retry_after
from apps.gym.calls.time_limits import TimeLimit


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, draw=1.0):
        self.now = 100.0
        self.slept = []
        self.pauses = Pauses(first=1.0, longest=5.0, draw=lambda: draw, sleep=self.sleep)

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def attempt(outcomes, clock, seconds=60.0, **limits):
    """Call with retries against a list of outcomes: exceptions are raised, anything else is returned."""

    async def call():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def run():
        with TimeLimit(seconds):
            return await call_with_retries(call, pauses=clock.pauses, **limits)

    return asyncio.run(run())


def fails(times, after=None):
    return [TryAgain(LookupError(f"try {number + 1}"), after=after) for number in range(times)]


def test_a_success_costs_no_pause():
    clock = Clock()
    assert attempt(["done"], clock, max_tries=3) == ("done", 0)
    assert clock.slept == []


def test_pauses_double_up_to_the_longest():
    clock = Clock()
    assert attempt([*fails(5), "done"], clock, max_tries=6) == ("done", 5)
    assert clock.slept == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_pauses_are_drawn_between_nothing_and_the_whole():
    clock = Clock(draw=0.25)
    attempt([*fails(2), "done"], clock, max_tries=3)
    assert clock.slept == [0.25, 0.5]


def test_the_last_error_is_raised_when_the_tries_are_used_up():
    clock = Clock()
    with pytest.raises(LookupError, match="try 3"):
        attempt(fails(5), clock, max_tries=3)
    assert len(clock.slept) == 2


def test_an_error_that_is_no_try_again_passes_at_once():
    clock = Clock()
    with pytest.raises(KeyError):
        attempt([KeyError("x"), "done"], clock, max_tries=3)


def test_no_retry_starts_after_the_time_limit():
    clock = Clock()
    with pytest.raises(LookupError, match="try 2"):
        attempt(fails(9), clock, max_tries=9, seconds=1.5)
    assert clock.slept == [1.0]


def test_what_the_server_asks_for_is_waited_and_a_little_more():
    clock = Clock()
    attempt([*fails(1, after=7.0), "done"], clock, max_tries=2)
    assert clock.slept == [8.0]


def test_a_server_that_asks_for_an_hour_is_not_waited_for():
    clock = Clock()
    with pytest.raises(LookupError):
        attempt(fails(2, after=3600.0), clock, max_tries=5)
    assert clock.slept == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("", None),
        (None, None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        (format_datetime(datetime.fromtimestamp(1_000_030, UTC), usegmt=True), 30.0),
        (format_datetime(datetime.fromtimestamp(999_000, UTC), usegmt=True), 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value, seconds):
    assert parse_retry_after(value, now=lambda: 1_000_000.0) == seconds
