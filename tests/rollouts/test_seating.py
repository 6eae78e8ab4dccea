"""Seats at judges: questions and rollouts of a model share its concurrency, and questions always get on."""

import asyncio

from apps.policies.models import PolicyModel
from apps.rollouts.engine.judge_seats import Bench, JudgeSeats


async def hold(bench, go):
    async with bench:
        await go.wait()


def test_no_more_questions_are_asked_at_once_than_there_is_room_and_all_get_their_turn():
    async def ask():
        bench, most, done = Bench(3), 0, []

        async def question(number):
            nonlocal most
            async with bench:
                most = max(most, bench.asked)
                await asyncio.sleep(0.001)
                done.append(number)

        await asyncio.gather(*(question(number) for number in range(20)))
        return most, done, bench.taken

    assert asyncio.run(ask()) == (3, list(range(20)), 0)


def test_rollouts_that_the_judge_attempts_itself_leave_one_seat_at_least():
    async def ask():
        bench, go = Bench(4), asyncio.Event()
        bench.attempting = 4
        questions = [asyncio.create_task(hold(bench, go)) for _ in range(5)]
        await asyncio.sleep(0)
        seen = [(bench.asked, bench.taken)]
        for left in (2, 0):
            bench.attempting = left
            bench.wake()
            seen.append((bench.asked, bench.taken))
        go.set()
        await asyncio.gather(*questions)
        return [*seen, (bench.asked, bench.taken)]

    assert asyncio.run(ask()) == [(1, 5), (2, 5), (4, 5), (0, 0)]


def test_whoever_gives_up_waiting_or_asking_leaves_no_seat_taken():
    async def ask():
        bench, go = Bench(1), asyncio.Event()
        asked, waiting, last = (asyncio.create_task(hold(bench, go)) for _ in range(3))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        before = (bench.asked, bench.taken)
        asked.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        between = (bench.asked, bench.taken)
        # Cancelled in the very moment in which it was seated.
        late = asyncio.create_task(hold(bench, go))
        await asyncio.sleep(0)
        last.cancel()
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(asked, waiting, last, late, return_exceptions=True)
        return before, between, (bench.asked, bench.taken)

    assert asyncio.run(ask()) == ((1, 2), (1, 1), (0, 0))


def test_a_worker_learns_its_part_of_a_judges_room_and_a_model_that_judges_itself_needs_none():
    judge, other = PolicyModel(pk=1, concurrency=8), PolicyModel(pk=2, concurrency=8)
    seats = JudgeSeats()
    bench = seats.of(judge, other)
    assert isinstance(bench, Bench)
    assert seats.of(judge, other) is bench
    assert not isinstance(seats.of(judge, judge), Bench)
    assert bench.room == 8
    seats.learn({1: 3}, {1: 2, 2: 7})
    assert (bench.room, bench.attempting) == (3, 2)
    seats.learn({}, {2: 7})
    assert (bench.room, bench.attempting) == (3, 0)
