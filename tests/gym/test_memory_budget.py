"""The memory budget of replies: who waits for it, who goes on, and what is given back when."""

import asyncio
import gc

import pytest
import uvloop
from aiohttp import web

from apps.gym.calls import memory_budget
from apps.gym.calls.memory_budget import (
    KIB,
    MIB,
    PATIENCE_SECONDS,
    READING,
    RETAINED,
    Account,
    Hold,
    MemoryBudget,
    parked,
)
from apps.gym.calls.outbound import Outbound, OutboundTimedOut, OutboundTooLarge
from apps.gym.calls.time_limits import TimeLimit
from tests.gym.test_outbound import LOCAL, serve

LARGE = b"x" * MIB


def run(work):
    async def bounded():
        async with asyncio.timeout(20):
            return await work()

    return uvloop.run(bounded())


async def cover(account: Account, size: int) -> Hold:
    hold = Hold(account)
    await hold.cover(size)
    return hold


async def begin(work) -> "asyncio.Task[Hold]":
    """A task that has run until it waits."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0.01)
    return task


def test_a_reply_counts_while_it_is_referenced():
    async def work():
        budget = MemoryBudget(100 * MIB)
        with budget.account() as account:
            hold = await cover(account, 2 * MIB)
            assert budget.used == READING * 2 * MIB
            del hold
            assert budget.used == RETAINED * 2 * MIB  # decoded, and not an event yet
            account.retain(MIB)
            assert budget.used == RETAINED * MIB
        return budget.used

    assert run(work) == 0


def test_a_reply_whose_event_was_counted_before_it_is_dropped_does_not_count_twice():
    async def work():
        budget = MemoryBudget(100 * MIB)
        with budget.account() as account:
            hold = await cover(account, 2 * MIB)
            account.retain(MIB)
            del hold
            return budget.used

    assert run(work) == RETAINED * MIB


def test_a_reply_waits_until_enough_is_given_back_and_the_oldest_rollout_goes_first():
    async def work():
        budget, order = MemoryBudget(READING * 10), []
        first, second, third = (budget.open_account() for _ in range(3))
        hold = await cover(first, 8)

        async def read(account):
            got = await cover(account, 8)
            order.append(account.number)
            del got
            account.close()

        younger, older = await begin(read(third)), await begin(read(second))
        assert (budget.waiting, order) == (2, [])
        del hold
        first.close()
        await asyncio.gather(younger, older)
        return order == [second.number, third.number], budget.used

    assert run(work) == (True, 0)


def test_rollouts_that_all_hold_memory_and_all_want_more_come_to_their_end():
    """Without an order among them each would wait for the others."""

    async def work():
        budget, highest = MemoryBudget(READING * 100), 0

        async def rollout():
            nonlocal highest
            with budget.account() as account:
                for _ in range(4):
                    hold = await cover(account, 20)
                    await asyncio.sleep(0)
                    account.retain(20)
                    del hold
                    highest = max(highest, budget.used)
                    await asyncio.sleep(0)

        await asyncio.gather(*(rollout() for _ in range(30)))
        return budget.used, budget.waiting, highest

    used, waiting, highest = run(work)
    assert (used, waiting) == (0, 0)
    assert highest <= READING * 100 + READING * 20


def test_a_rollout_that_waits_for_one_that_waits_for_memory_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(memory_budget, "PATIENCE_SECONDS", 0.05)

    async def work():
        budget = MemoryBudget(READING * 10)
        held = await cover(budget.open_account(), 8)  # dropped by whoever waits for the seat of the second
        got = await cover(budget.open_account(), 8)
        del held
        return got.size

    assert run(work) == 8


def test_a_rollout_that_is_cancelled_while_it_waits_gives_its_place_to_the_next():
    async def work():
        budget = MemoryBudget(READING * 10)
        hold = await cover(budget.open_account(), 4)
        large = await begin(cover(budget.open_account(), 10))
        small = await begin(cover(budget.open_account(), 4))
        assert budget.waiting == 2
        large.cancel()
        got = await small
        del hold, got, small
        await asyncio.sleep(0)  # the loop itself refers to the last task until then
        return budget.used, budget.waiting

    assert run(work) == (0, 0)


@pytest.mark.parametrize("has_length", [True, False])
def test_a_server_has_to_wait_while_there_is_no_memory_and_the_time_limits_wait_as_well(has_length):
    async def handler(request):
        response = web.StreamResponse()
        if has_length:
            response.content_length = len(LARGE)
        await response.prepare(request)
        await response.write(LARGE)
        await response.write_eof()
        return response

    async def talk(port):
        outbound = Outbound(LOCAL, memory=MemoryBudget(READING * MIB))
        url = f"http://127.0.0.1:{port}/"
        first = await outbound.request("GET", url, timeout=5)
        with outbound.memory.account(), TimeLimit(0.3):
            second = await begin(outbound.request("GET", url, timeout=0.3))
            await asyncio.sleep(0.6)
            assert (second.done(), outbound.memory.waiting) == (False, 1)
            del first
            got = await second
        await outbound.close()
        return len(got.body)

    assert serve(handler, talk) == len(LARGE)


def test_a_server_that_is_slow_by_itself_still_runs_into_the_time_limit():
    async def handler(request):
        response = web.StreamResponse()
        response.content_length = len(LARGE)
        await response.prepare(request)
        await response.write(LARGE[: MIB // 2])
        await asyncio.sleep(1)
        return response

    async def talk(port):
        outbound = Outbound(LOCAL)
        try:
            with pytest.raises(OutboundTimedOut):
                await outbound.request("GET", f"http://127.0.0.1:{port}/", timeout=0.2)
        finally:
            await outbound.close()
        gc.collect()
        return outbound.memory.used

    assert serve(handler, talk) == 0


@pytest.mark.parametrize("has_length", [True, False])
def test_a_reply_that_can_never_fit_is_refused_by_name_instead_of_waiting(has_length):
    async def handler(request):
        response = web.StreamResponse()
        if has_length:
            response.content_length = len(LARGE)
        await response.prepare(request)
        await response.write(LARGE)
        return response

    async def talk(port):
        outbound = Outbound(LOCAL, memory=MemoryBudget(2 * MIB))
        try:
            with pytest.raises(OutboundTooLarge, match=f"{2 * MIB // READING:,} bytes"):
                await outbound.request("GET", f"http://127.0.0.1:{port}/", timeout=5)
        finally:
            await outbound.close()

    serve(handler, talk)


def test_a_rollout_that_would_hold_more_than_the_whole_budget_is_refused_by_name():
    async def handler(request):
        return web.Response(body=LARGE)

    async def talk(port):
        outbound = Outbound(LOCAL, memory=MemoryBudget(READING * MIB + MIB))
        try:
            with outbound.memory.account() as account:
                account.retain(MIB)
                with pytest.raises(OutboundTooLarge, match="GYMWEB_WORKER_MEMORY_MB"):
                    await outbound.request("GET", f"http://127.0.0.1:{port}/", timeout=5)
        finally:
            await outbound.close()

    serve(handler, talk)


@pytest.mark.parametrize("has_length", [True, False])
def test_a_reply_of_exactly_what_the_budget_allows_is_read(has_length):
    async def handler(request):
        response = web.StreamResponse()
        if has_length:
            response.content_length = len(LARGE)
        await response.prepare(request)
        await response.write(LARGE)
        return response

    async def talk(port):
        outbound = Outbound(LOCAL, memory=MemoryBudget(READING * MIB))
        reply = await outbound.request("GET", f"http://127.0.0.1:{port}/", timeout=5)
        await outbound.close()
        return len(reply.body), outbound.memory.used

    assert serve(handler, talk) == (MIB, READING * MIB)


@pytest.mark.parametrize(
    ("added", "width"),
    [("plain", 1), ("\\n", 1), ("巴", 2), ("\\u5df4", 2), ("😀", 4), ("\\ud83d\\ude00", 4)],
)
def test_a_reply_counts_by_what_its_text_takes_in_memory(added, width):
    """One emoji makes every character of its text four bytes wide."""
    body = LARGE + added.encode()

    async def handler(request):
        return web.Response(body=body)

    async def talk(port):
        outbound = Outbound(LOCAL)
        reply = await outbound.request("GET", f"http://127.0.0.1:{port}/", timeout=5)
        await outbound.close()
        return outbound.memory.used / len(reply.body)

    assert serve(handler, talk) == READING * width


def test_small_replies_never_wait():
    async def handler(request):
        return web.Response(body=b"x" * 64 * KIB)

    async def talk(port):
        outbound = Outbound(LOCAL, memory=MemoryBudget(MIB))
        outbound.memory.add(2 * MIB)
        try:
            return len((await outbound.request("GET", f"http://127.0.0.1:{port}/", timeout=5)).body)
        finally:
            await outbound.close()

    assert serve(handler, talk) == 64 * KIB


def test_a_reply_is_read_although_rollouts_that_wait_for_their_endpoint_hold_all_memory():
    async def work():
        budget, turn = MemoryBudget(100), asyncio.Event()

        async def wait_for_a_turn():
            with budget.account() as account:
                await budget.reserve(account, 100)
                with parked():
                    await turn.wait()
                account.drop(100)

        async def read():
            with budget.account() as account:
                await budget.reserve(account, 60)
                account.drop(60)

        waiting = asyncio.create_task(wait_for_a_turn())
        await asyncio.sleep(0)
        # Far less than PATIENCE_SECONDS: it is the parked rollout that lets it go on.
        await asyncio.wait_for(read(), timeout=PATIENCE_SECONDS / 2)
        turn.set()
        await waiting
        return budget.used

    assert uvloop.run(work()) == 0
