"""A loop that stands still is reported with its culprit."""

import asyncio
import logging
import time
import weakref

from apps.rollouts.engine import stalls
from apps.rollouts.engine.stalls import STALL_SECONDS, StallWatch
from tests.deadlines import wait_until


class Clock:
    """Stands for the module `time`, so that only the test makes the loop stall."""

    now = 1000.0

    def monotonic(self):
        return self.now


def blocks_the_loop(clock, caplog):
    clock.now += 2 * STALL_SECONDS
    wait_until(lambda: caplog.records != [])
    time.sleep(0.1)  # some more looks at the same stall


def test_a_stall_is_logged_once_with_what_held_the_loop_up(monkeypatch, caplog):
    clock = Clock()
    monkeypatch.setattr(stalls, "time", clock)
    monkeypatch.setattr(stalls, "_TICK_SECONDS", 0.02)

    async def work():
        watch = StallWatch()
        watch.start()
        await asyncio.sleep(0.1)
        assert caplog.records == []
        blocks_the_loop(clock, caplog)
        await asyncio.sleep(0.1)
        watch.stop()

    with caplog.at_level(logging.WARNING, logger=stalls.logger.name):
        asyncio.run(work())
    assert len(caplog.records) == 1
    assert "blocks_the_loop" in caplog.text


class Reply:
    """A large reply, which takes up memory as long as something refers to it."""


def test_what_the_culprit_held_is_freed_when_it_goes_on(monkeypatch, caplog):
    clock = Clock()
    monkeypatch.setattr(stalls, "time", clock)
    monkeypatch.setattr(stalls, "_TICK_SECONDS", 0.02)

    def block_with_a_reply():
        reply = Reply()
        blocks_the_loop(clock, caplog)
        return weakref.ref(reply)

    async def work():
        watch = StallWatch()
        watch.start()
        await asyncio.sleep(0.1)
        found = block_with_a_reply()
        await asyncio.sleep(0.1)
        assert found() is None
        watch.stop()

    with caplog.at_level(logging.WARNING, logger=stalls.logger.name):
        asyncio.run(work())
    assert "block_with_a_reply" in caplog.text
