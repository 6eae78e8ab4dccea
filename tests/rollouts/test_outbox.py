"""The outbox while the database is away, slow or full: nothing is dropped, nothing grows without bound."""

import asyncio
import sqlite3

import pytest
from django.db import OperationalError

from apps.gym.calls.memory_budget import MemoryBudget
from apps.gym.traces.events import ModelCall, Prompt, ToolResult
from apps.gym.traces.items import message
from apps.rollouts.engine import outbox as outbox_module
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.outbox import NotStored, Outbox
from tests.deadlines import DEADLINE, wait_until_async
from tests.rollouts.work import end


def claim(rollout_id):
    return Claim(1, rollout_id, 7, 1, 0, 0, 1, 0, 0)


class Database:
    """Takes batches while `up`."""

    def __init__(self):
        self.up = False
        self.events = []
        self.ends = []
        self.again = []

    async def run(self, work, **kwargs):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outbox_module, "record_batch", self.record)
            return work(**kwargs)

    def record(self, *, events, ends, now, may_be_stored, images):
        self.again.append(may_be_stored)
        if not self.up:
            raise OperationalError("disk full")
        self.events += events
        self.ends += ends
        return {7}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(outbox_module, "RETRY_SECONDS", (0.01,))


def test_results_wait_for_the_database_and_all_arrive_in_order(quick):
    async def work():
        database, changed = Database(), []
        outbox = Outbox(in_database=database.run, changed=changed.append)
        running = asyncio.create_task(outbox.run())
        for number in range(500):
            outbox.add_event(claim(number), Prompt(items=[]))
            outbox.add_end(end(claim(number)))
        await wait_until_async(lambda: len(database.again) >= 2)
        assert (outbox.backlog, outbox.trouble) == (500, "Storing results failed and is retried: disk full")
        assert outbox.waiting_ids() == set(range(500))
        database.up = True
        outbox.stop()
        await running
        assert [one.id for one in database.ends] == list(range(500))
        assert [event[0] for event in database.events] == list(range(500))
        assert (outbox.backlog, outbox.trouble, changed[-1]) == (0, "", {7})
        # What was sent before may have been stored all the same; what follows was never sent.
        assert (database.again[0], database.again[1], database.again[-1]) == (False, True, False)

    asyncio.run(work())


def test_rollouts_wait_when_the_outbox_takes_half_of_the_memory_budget_and_go_on_when_it_does_not(quick):
    async def work():
        database, memory = Database(), MemoryBudget(10_000)
        outbox = Outbox(in_database=database.run, changed=lambda _: None, memory=memory)
        running = asyncio.create_task(outbox.run())
        written = 0

        async def write():
            nonlocal written
            for number in range(100):
                outbox.add_event(claim(number), Prompt(items=[{"text": "x" * 100}]))
                written += 1
                await outbox.wait_for_space()

        writing = asyncio.create_task(write())
        await wait_until_async(lambda: outbox.is_full)
        await asyncio.sleep(0.1)
        assert (outbox.is_full, written < 20, memory.used > 5_000) == (True, True, True)
        database.up = True
        async with asyncio.timeout(DEADLINE):
            await writing
        outbox.stop()
        await running
        assert (written, len(database.events), outbox.is_full, memory.used) == (100, 100, False, 0)

    asyncio.run(work())


@pytest.mark.django_db(transaction=True)
def test_memory_of_stored_events_is_given_back_exactly_whatever_their_characters():
    async def work():
        memory = MemoryBudget()

        async def bind(work, *, events, ends, now, may_be_stored):
            with sqlite3.connect(":memory:") as connection:
                for event in events:
                    connection.execute("SELECT length(?)", [event[4]]).fetchone()
            return set()

        outbox = Outbox(in_database=bind, changed=lambda _: None, memory=memory)
        running = asyncio.create_task(outbox.run())
        for number in range(20):
            outbox.add_event(claim(number), Prompt(items=[message("user", "日本語 ü " * 500)]))
        assert memory.used > 20 * 4_000
        outbox.stop()
        await running
        return memory.used

    assert asyncio.run(work()) == 0


def test_many_workers_store_less_often_but_nothing_that_someone_waits_for_is_delayed(quick, monkeypatch):
    monkeypatch.setattr(outbox_module, "LONGEST_FLUSH_SECONDS", DEADLINE * 10)
    monkeypatch.setattr(outbox_module, "MAX_EVENTS", 20)

    async def work():
        database = Database()
        database.up = True
        outbox = Outbox(in_database=database.run, changed=lambda _: None, memory=MemoryBudget(50_000))
        outbox.share_database(workers=1_000_000)
        running = asyncio.create_task(outbox.run())

        async def stored(number):
            await wait_until_async(lambda: len(database.events) == number)

        outbox.add_event(claim(1), Prompt(items=[]))
        await asyncio.sleep(0.2)
        assert database.events == []
        async with asyncio.timeout(DEADLINE):
            await outbox.wait_until_stored(claim(1))
        outbox.add_event(claim(1), Prompt(items=[]))
        outbox.store_now()
        await stored(2)
        for _ in range(20):  # enough for a batch
            outbox.add_event(claim(1), Prompt(items=[]))
        await stored(22)
        outbox.add_event(claim(1), Prompt(items=[{"text": "x" * 30_000}]))  # no more space
        await stored(23)
        outbox.share_database(workers=1)
        outbox.store_now()
        outbox.add_event(claim(1), Prompt(items=[]))
        await stored(24)
        outbox.add_event(claim(1), Prompt(items=[]))
        await stored(25)
        outbox.share_database(workers=1_000_000)
        outbox.add_event(claim(1), Prompt(items=[]))
        outbox.stop()
        await running
        assert len(database.events) == 26

    asyncio.run(work())


def test_a_backlog_is_stored_without_pauses(quick, monkeypatch):
    monkeypatch.setattr(outbox_module, "LONGEST_FLUSH_SECONDS", DEADLINE * 10)

    async def work():
        database = Database()
        database.up = True
        outbox = Outbox(in_database=database.run, changed=lambda _: None)
        outbox.share_database(workers=1_000_000)
        for number in range(5 * outbox_module.MAX_ENDS):
            outbox.add_end(end(claim(number)))
        running = asyncio.create_task(outbox.run())
        await wait_until_async(lambda: len(database.ends) == 5 * outbox_module.MAX_ENDS)
        outbox.stop()
        await running

    asyncio.run(work())


def test_a_credential_counts_until_the_end_of_its_attempt_over_all_batches(quick):
    secret = "ghp_" + "a1B2c3D4e5" * 4

    async def work():
        database = Database()
        database.up = True
        outbox = Outbox(in_database=database.run, changed=lambda _: None)
        running = asyncio.create_task(outbox.run())

        async def stored(number):
            await wait_until_async(lambda: len(database.events) == number)

        outbox.add_event(claim(1), ToolResult(call_id="c", name="read", output=secret))
        outbox.add_event(claim(2), ModelCall(seen=0, items=[], tokens=b"ids"))
        await stored(2)
        outbox.add_event(claim(1), ModelCall(seen=1, items=[], tokens=b"ids"))
        outbox.add_event(claim(2), ModelCall(seen=1, items=[], tokens=b"ids"))
        await stored(4)
        outbox.forget(claim(2))
        outbox.add_end(end(claim(1)))
        outbox.add_end(end(claim(3), "failed", error_message=f"refused {secret}"))
        outbox.stop()
        await running
        assert [(event[0], event[5]) for event in database.events] == [(1, None), (2, b"ids"), (1, None), (2, b"ids")]
        assert [one.redactions for one in database.ends] == [{"github_token": 1}, {"github_token": 1}]
        assert secret not in str(database.events) + str(database.ends)
        assert outbox._redactions == {}

    asyncio.run(work())


def test_an_attempt_whose_event_was_rejected_never_completes_and_later_calls_are_told(quick):
    class Picky(Database):
        def record(self, *, events, **rest):
            if any("unstorable" in event[4] for event in events):
                raise ValueError("this event is rejected")
            return super().record(events=events, **rest)

    async def work():
        database = Picky()
        database.up = True
        outbox = Outbox(in_database=database.run, changed=lambda _: None)
        running = asyncio.create_task(outbox.run())
        outbox.add_event(claim(1), ToolResult(call_id="c", name="read", output="unstorable"))
        outbox.add_event(claim(2), ModelCall(seen=0, items=[]))
        await wait_until_async(lambda: len(database.events) == 1)
        for number in (1, 2):
            outbox.add_event(claim(number), ModelCall(seen=1, items=[]))
        with pytest.raises(NotStored, match="this event is rejected"):
            await outbox.wait_until_stored(claim(1))
        with pytest.raises(NotStored, match="this event is rejected"):
            await outbox.wait_until_stored(claim(1))  # nothing is queued any more
        await outbox.wait_until_stored(claim(2))
        outbox.add_event(claim(3), ToolResult(call_id="c", name="read", output="unstorable"))
        await wait_until_async(lambda: (3, 1) in outbox._rejected)
        for number, status in ((1, "completed"), (2, "completed"), (3, "queued")):
            outbox.add_end(end(claim(number), status))
        outbox.stop()
        await running
        assert [(one.id, one.status) for one in database.ends] == [(1, "failed"), (2, "completed"), (3, "queued")]
        assert outbox._rejected == {}

    asyncio.run(work())
