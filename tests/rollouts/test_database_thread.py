"""A database that hangs is logged, although nothing fails."""

import asyncio
import logging
import threading

from apps.rollouts.engine import database_thread
from apps.rollouts.engine.database_thread import DatabaseThread
from tests.deadlines import wait_until_async


def test_each_hanging_call_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(database_thread, "HANGING_SECONDS", 0.3)
    monkeypatch.setattr(database_thread, "CHECK_SECONDS", 0.05)

    async def hang_once(database, number):
        answered = threading.Event()
        hanging = asyncio.create_task(database.run(answered.wait))
        await wait_until_async(lambda: len(caplog.records) >= number)
        answered.set()
        await hanging
        await asyncio.sleep(0.2)  # a check after the answer

    async def work():
        database = DatabaseThread()
        logging_hangs = asyncio.create_task(database.log_hanging(lambda: "2 results wait"))
        await asyncio.sleep(0.4)
        assert caplog.records == []
        await hang_once(database, 1)
        seen = len(caplog.records)
        await hang_once(database, seen + 1)
        logging_hangs.cancel()
        await database.close()

    with caplog.at_level(logging.WARNING, logger=database_thread.logger.name):
        asyncio.run(work())
    assert "2 results wait" in caplog.text
