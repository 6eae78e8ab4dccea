"""A loop that stands still is reported with its culprit."""

import asyncio
import logging
import time

from apps.rollouts import stalls
from apps.rollouts.stalls import StallWatch


def blocks_the_loop():
    time.sleep(0.5)


def test_a_stall_is_logged_once_with_what_held_the_loop_up(monkeypatch, caplog):
    monkeypatch.setattr(stalls, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(stalls, "_TICK_SECONDS", 0.02)

    async def work():
        watch = StallWatch()
        watch.start()
        await asyncio.sleep(0.3)
        assert caplog.records == []
        blocks_the_loop()
        await asyncio.sleep(0.1)
        watch.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    assert len(caplog.records) == 1
    assert "blocks_the_loop" in caplog.text
