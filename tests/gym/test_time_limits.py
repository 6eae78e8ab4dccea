"""Time limits stop while the code under them waits for flow control, also in child tasks, and go on afterwards."""

import asyncio
import gc
import weakref
from contextvars import ContextVar

import pytest
import uvloop

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


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_limits_that_run_together_end_each_at_its_time(run):
    ended = []

    async def end_after(seconds):
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError), TimeLimit(seconds):
            await asyncio.sleep(10)
        ended.append((seconds, asyncio.get_running_loop().time() - began))

    async def work():
        with TimeLimit(0.01):  # left before it ends, so another limit must set the timer again
            pass
        await asyncio.gather(*map(end_after, (0.3, 0.1, 0.2, 0.1)))

    run(work())
    assert [seconds for seconds, _ in ended] == [0.1, 0.1, 0.2, 0.3]
    assert all(seconds - 0.005 < waited < seconds + 2 for seconds, waited in ended)


def test_limits_that_were_left_do_not_accumulate():
    async def work():
        with TimeLimit(60) as first:
            for _ in range(3_000):
                with TimeLimit(30):
                    pass
            waiting = [asyncio.create_task(wait_stopped(0.01)) for _ in range(3)]
            await asyncio.gather(*waiting)
            assert 59 < first.left <= 60
        return len(time_limits._thread.get_alarm()._ends)

    assert asyncio.run(work()) < 400


def test_limits_of_another_event_loop_in_the_same_thread_have_their_own_timer():
    async def work():
        with TimeLimit(0.05):
            await asyncio.sleep(10)

    for run in (asyncio.run, uvloop.run, asyncio.run):
        with pytest.raises(TimeoutError):
            run(work())


class Kept:
    """A result of a task, or a value of a context variable."""


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_limit_that_was_left_keeps_nothing(run):
    variable = ContextVar("variable")

    async def call():
        variable.set(value := Kept())
        with TimeLimit(60):
            result = Kept()
        return result, weakref.ref(value), weakref.ref(result)

    async def work():
        kept = [(await asyncio.create_task(call()))[1:] for _ in range(3)]
        await asyncio.sleep(0)  # until the event loop drops the last task
        gc.collect()
        return [reference() for references in kept for reference in references]

    assert run(work()) == [None] * 6
