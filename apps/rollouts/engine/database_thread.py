"""The worker's one thread for the database: calls go one after the other, on a connection that is mended."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from django.db import connection

from apps.accounts.outages import drop_broken_connection

Result = TypeVar("Result")


class DatabaseThread:
    """Used by the worker's loop alone. A call that hangs is waited for: it may yet be answered. `silence` tells."""

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
        """Seconds since the database last answered while calls wait for it; 0 when none does. From any thread."""
        return time.monotonic() - self._quiet_since if self._waiting else 0.0

    async def close(self) -> None:
        await self.run(_close_connection)
        self._executor.shutdown(wait=False)


def _with_live_connection(work: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    try:
        return work(*args, **kwargs)
    except Exception:
        drop_broken_connection()
        raise


def _close_connection() -> None:
    # Looked up here: `connection` is another object in every thread, and only its own thread may close it.
    connection.close()
