"""The single database thread of a worker. It runs calls in order and reconnects after errors."""

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

CHECK_SECONDS = 1.0
PREPARE_THRESHOLD = 2
"""Executions of a statement on one connection before it is prepared."""
HANGING_SECONDS = 5.0
"""Seconds without a response after which a hanging database is logged."""


class DatabaseThread:
    """Runs database calls of the worker's event loop.

    A hanging call is never abandoned, because it may still complete. `seconds_hanging` reports it.
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
    def seconds_hanging(self) -> float:
        """Return the seconds since the last response while calls are waiting, else 0. Thread-safe."""
        return time.monotonic() - self._quiet_since if self._waiting else 0.0

    @property
    def trouble(self) -> str:
        """Return an error message if the database hangs, else an empty string. Thread-safe."""
        seconds = self.seconds_hanging
        return f"The database has not answered for {seconds:.0f} s." if seconds > HANGING_SECONDS else ""

    async def log_hanging(self, waiting: Callable[[], str]) -> None:
        """Log while the database hangs, because a call without a response raises nothing.

        `waiting` describes the waiting work.
        """
        logged = 0.0
        while True:
            # A call that hangs from now on is logged after HANGING_SECONDS.
            await asyncio.sleep(CHECK_SECONDS if logged else max(0.1, HANGING_SECONDS - self.seconds_hanging))
            if self.seconds_hanging > max(HANGING_SECONDS, 2 * logged):
                logged = self.seconds_hanging
                logger.warning("the database has not answered for %.0f s (%s)", logged, waiting())
            elif self.seconds_hanging < HANGING_SECONDS:
                logged = 0.0

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
    own: Any = connection
    own.is_pooled = False  # Web requests must not get this connection (gymweb/postgresql/base.py).
    connection.ensure_connection()
    if connection.connection.prepare_threshold is None:
        from django.db.backends.postgresql.base import ServerBindingCursor  # imports psycopg

        connection.connection.cursor_factory = ServerBindingCursor
        connection.connection.prepare_threshold = PREPARE_THRESHOLD


def _close_connection() -> None:
    # `connection` is thread-local, and only its own thread may close it.
    connection.close()
