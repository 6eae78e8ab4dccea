"""Time limits stop while the code under them waits for flow control, also in child tasks, and go on afterwards."""

import asyncio
import time

import pytest

from apps.gym.calls import time_limits
from apps.gym.calls.time_limits import TimeLimit, stopped_clocks, time_left


async def wait_stopped(seconds):
    with stopped_clocks():
        await asyncio.sleep(seconds)


def test_waiting_in_a_child_task_uses_up_no_limit_around_it():
    async def run():
        with TimeLimit(20) as outer, TimeLimit(10) as inner:
            before = time_left()
            await asyncio.gather(wait_stopped(0.4), wait_stopped(0.3))
            waited = min(outer.waited, inner.waited)
            assert waited > 0.3
            assert before - time_left() < waited
        assert time_left() is None

    asyncio.run(run())


def test_a_limit_goes_on_after_a_wait():
    async def run():
        with TimeLimit(0.1):
            await wait_stopped(0.2)
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        asyncio.run(run())


def test_a_wait_that_outlives_its_limit_changes_nothing():
    async def run():
        with TimeLimit(10.0):
            waiting = asyncio.create_task(wait_stopped(0.05))
            await asyncio.sleep(0.01)
        await waiting

    asyncio.run(run())


async def seconds_until_over(limit, *, stopped=0.0):
    began = time.monotonic()
    try:
        with TimeLimit(limit):
            if stopped:
                await wait_stopped(stopped)
            await asyncio.sleep(10)
    except TimeoutError:
        return time.monotonic() - began - stopped
    pytest.fail("the limit did not end the sleep")


def test_long_limits_share_timers_and_end_on_time(monkeypatch):
    monkeypatch.setattr(time_limits, "EXACT_SECONDS", 0.0)

    async def run():
        timers = []
        loop = asyncio.get_running_loop()
        call_at = loop.call_at
        monkeypatch.setattr(loop, "call_at", lambda at, *do, **how: timers.append(at) or call_at(at, *do, **how))
        took = await asyncio.gather(*(seconds_until_over(0.5) for _ in range(200)))
        assert all(0.499 <= each < 2.0 for each in took)
        assert len(timers) < 200 + 40  # each `sleep` also has one
        took = await asyncio.gather(*(seconds_until_over(0.5, stopped=0.2) for _ in range(200)))
        assert all(0.49 <= each < 2.0 for each in took)

    asyncio.run(run())


def test_limits_that_were_left_keep_no_timers(monkeypatch):
    monkeypatch.setattr(time_limits, "EXACT_SECONDS", 0.0)

    async def run():
        for number in range(100):
            with TimeLimit(3600.0 + number):
                with TimeLimit(60.0):
                    await wait_stopped(0)
                assert time_limits._groups.shared
        assert not time_limits._groups.shared

    asyncio.run(run())


def test_a_long_limit_is_at_most_a_second_late():
    async def run():
        with TimeLimit(86_400.0) as limit:
            [group] = time_limits._groups.shared.values()
            assert 0 <= group.timer.when() - limit._ends_at <= 1.0

    asyncio.run(run())


def test_limits_of_two_loops_are_apart(monkeypatch):
    monkeypatch.setattr(time_limits, "EXACT_SECONDS", 0.0)
    for _ in range(2):
        assert asyncio.run(seconds_until_over(0.2)) >= 0.2


def test_a_longer_time_is_not_over_with_a_shorter_one(monkeypatch):
    monkeypatch.setattr(time_limits, "EXACT_SECONDS", 0.0)

    async def run():
        with TimeLimit(5.0), pytest.raises(TimeoutError), TimeLimit(0.2):
            await asyncio.sleep(10)

    asyncio.run(run())
