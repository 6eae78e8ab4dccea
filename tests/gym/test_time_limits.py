"""Time limits stop while the code under them waits for flow control, also in child tasks, and go on afterwards."""

import asyncio

import pytest

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
