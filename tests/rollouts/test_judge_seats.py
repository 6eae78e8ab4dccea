"""Seats of judge models: questions and rollouts share the concurrency of a model, and questions never starve."""

import asyncio

from apps.policies.models import PolicyModel
from apps.rollouts.engine.judge_seats import JudgeLimiter, JudgeSeats


async def hold(limiter, go):
    async with limiter:
        await go.wait()


def test_no_more_questions_are_asked_at_once_than_there_is_room_and_all_get_their_turn():
    async def ask():
        limiter, most, done = JudgeLimiter(3), 0, []

        async def question(number):
            nonlocal most
            async with limiter:
                most = max(most, limiter.in_flight)
                await asyncio.sleep(0.001)
                done.append(number)

        await asyncio.gather(*(question(number) for number in range(20)))
        return most, done, limiter.taken

    assert asyncio.run(ask()) == (3, list(range(20)), 0)


def test_rollouts_that_the_judge_attempts_itself_leave_one_seat_at_least():
    async def ask():
        limiter, go = JudgeLimiter(4), asyncio.Event()
        limiter.running_rollouts = 4
        questions = [asyncio.create_task(hold(limiter, go)) for _ in range(5)]
        await asyncio.sleep(0)
        seen = [(limiter.in_flight, limiter.taken)]
        for left in (2, 0):
            limiter.running_rollouts = left
            limiter.wake()
            seen.append((limiter.in_flight, limiter.taken))
        go.set()
        await asyncio.gather(*questions)
        return [*seen, (limiter.in_flight, limiter.taken)]

    assert asyncio.run(ask()) == [(1, 5), (2, 5), (4, 5), (0, 0)]


def test_a_cancelled_caller_frees_its_seat():
    async def ask():
        limiter, go = JudgeLimiter(1), asyncio.Event()
        asked, waiting, last = (asyncio.create_task(hold(limiter, go)) for _ in range(3))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        before = (limiter.in_flight, limiter.taken)
        asked.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        between = (limiter.in_flight, limiter.taken)
        # Cancelled in the very moment in which it was seated.
        late = asyncio.create_task(hold(limiter, go))
        await asyncio.sleep(0)
        last.cancel()
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(asked, waiting, last, late, return_exceptions=True)
        return before, between, (limiter.in_flight, limiter.taken)

    assert asyncio.run(ask()) == ((1, 2), (1, 1), (0, 0))


def test_a_worker_learns_its_part_of_a_judges_room_and_a_model_that_judges_itself_needs_none():
    judge, other = PolicyModel(pk=1, concurrency=8), PolicyModel(pk=2, concurrency=8)
    seats = JudgeSeats()
    limiter = seats.of(judge, other)
    assert isinstance(limiter, JudgeLimiter)
    assert seats.of(judge, other) is limiter
    assert not isinstance(seats.of(judge, judge), JudgeLimiter)
    assert limiter.limit == 8
    seats.set_limits({1: 3}, {1: 2, 2: 7})
    assert (limiter.limit, limiter.running_rollouts) == (3, 2)
    seats.set_limits({}, {2: 7})
    assert (limiter.limit, limiter.running_rollouts) == (3, 0)
