"""The single database thread of a worker: calls run one after the other, on a connection re-opened after errors."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from django.db import connection

from apps.accounts.outages import drop_broken_connection

Result = TypeVar("Result")
logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
PREPARE_THRESHOLD = 2
"""Executions of a statement on one connection before it is prepared."""
HANGING_SECONDS = 5.0
"""Seconds without response of the database before it is logged."""


class DatabaseThread:
    """Used only by the loop of the worker.

    A hanging call is awaited, because it may still complete. `silence` reports it.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollouts-database")
        self._waiting = 0
        self._quiet_since = 0.0

    async def run(self, work: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        if not self._waiting:
            self._quiet_since = time.monotonic()
        self._waiting += 1
        call = partial(_with_live_connection, work, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, call)
        finally:
            self._waiting -= 1
            self._quiet_since = time.monotonic()

    @property
    def silence(self) -> float:
        """Return the seconds since the last response of the database while calls wait, else 0. Thread-safe."""
        return time.monotonic() - self._quiet_since if self._waiting else 0.0

    @property
    def trouble(self) -> str:
        """Return a message for users if the database hangs, else an empty string. Thread-safe."""
        silence = self.silence
        return f"The database has not answered for {silence:.0f} s." if silence > HANGING_SECONDS else ""

    async def say_silence(self, waiting: Callable[[], str]) -> None:
        """Log a hanging database, because a call without response raises nothing."""
        said = 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.silence > max(HANGING_SECONDS, 2 * said):
                said = self.silence
                logger.warning("the database has not answered for %.0f s (%s)", said, waiting())
            elif self.silence < HANGING_SECONDS:
                said = 0.0

    async def close(self) -> None:
        await self.run(_close_connection)
        self._executor.shutdown(wait=False)


def _with_live_connection(work: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    try:
        keep_plans()
        return work(*args, **kwargs)
    except Exception:
        drop_broken_connection()
        raise


def keep_plans() -> None:
    """Prepare the statements that this thread repeats, so that PostgreSQL plans them once.

    Django binds parameters in the client and prepares nothing. Planning took most of the time of small statements.
    """
    if connection.vendor != "postgresql":
        return
    connection.ensure_connection()
    if connection.connection.prepare_threshold is None:
        from django.db.backends.postgresql.base import ServerBindingCursor  # imports psycopg

        connection.connection.cursor_factory = ServerBindingCursor
        connection.connection.prepare_threshold = PREPARE_THRESHOLD


def _close_connection() -> None:
    # Resolved here: `connection` differs per thread, and only its own thread may close it.
    connection.close()
