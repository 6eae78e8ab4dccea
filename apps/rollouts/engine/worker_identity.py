"""Manage the lease of a worker: obtain it, renew it by heartbeats, and replace it if it was lost."""

import asyncio
import logging
from collections.abc import Callable

from django.db import InterfaceError, OperationalError

from apps.accounts.outage_log import RetryLog
from apps.accounts.telemetry.log_context import set_worker
from apps.rollouts.engine.database_thread import DatabaseThread
from apps.rollouts.engine.worker_leases import (
    Heartbeat,
    Vitals,
    claiming_workers,
    drain_lease,
    release_lease,
    release_unknown,
    renew_lease,
    take_lease,
)

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class WorkerIdentity:
    """The identity of a worker: its lease.

    `vitals` is called on the heartbeat thread. `lost` is called on the event loop with the id of the lost lease. All
    other methods are used on the event loop.
    """

    def __init__(
        self,
        *,
        seats: int,
        group: str,
        database: DatabaseThread,
        vitals: Callable[[], Vitals],
        lost: Callable[[int], None],
    ) -> None:
        self.lease = 0
        self.claiming: list[tuple[int, str]] = []
        self.trouble = ""
        """The reason why nothing can be claimed, or an empty string."""
        self._seats, self._group = seats, group
        self._database, self._vitals, self._lost = database, vitals, lost
        self._log = RetryLog("taking a lease")
        self._heartbeat: Heartbeat | None = None
        self._strays: set[int] = set()

    async def obtain(self, *first: Callable[[], object], is_wanted: Callable[[], bool]) -> None:
        """Run the functions `first`, then take a lease. During an outage, wait for the database."""
        while not self.lease and is_wanted():
            try:
                for work in first:
                    await self._database.run(work)
                await self._take_lease()
                self._log.works()
            except (OperationalError, InterfaceError) as problem:
                if "no such table" in str(problem):
                    raise  # SQLite without migrations: waiting would not help
                self.trouble = f"No lease available: {problem}"
                self._log.failed(problem)
                await asyncio.sleep(RETRY_SECONDS)

    async def _take_lease(self) -> None:
        worker = await self._database.run(take_lease, seats=self._seats, group=self._group)
        self.claiming = await self._database.run(claiming_workers)
        self.lease, self._strays = worker.pk, set()
        set_worker(worker.pk)
        loop = asyncio.get_running_loop()

        def lost() -> None:
            loop.call_soon_threadsafe(self._lost, worker.pk)

        self._heartbeat = Heartbeat(worker_id=worker.pk, vitals=self._vitals, lost=lost)
        self._heartbeat.start()

    async def release_unknown(self, known: set[int]) -> None:
        """Requeue rollouts that the database assigns to this worker but that it does not know; see worker_leases."""
        if self.lease:
            held = {"worker_id": self.lease, "known": known, "unknown_before": self._strays}
            self._strays = await self._database.run(release_unknown, **held)

    def drop(self) -> None:
        """Drop the lease after other workers expired it."""
        self.lease = 0
        self._stop_heartbeat()

    async def drain(self) -> None:
        """Announce that this worker claims no more rollouts."""
        try:
            await self._database.run(drain_lease, worker_id=self.lease)
        except Exception as problem:
            logger.warning("draining without announcement: %r", problem)

    async def release(self) -> None:
        self._stop_heartbeat()
        try:
            # The final report, with the counters since the last heartbeat.
            await self._database.run(renew_lease, worker_id=self.lease, vitals=self._vitals())
            released = await self._database.run(release_lease, worker_id=self.lease)
            if released:
                logger.info("%d rollouts released", released)
        except Exception as problem:
            logger.warning("lease not released, it will expire: %r", problem)

    async def join(self) -> None:
        """Wait for the heartbeat thread to end."""
        if self._heartbeat:
            await asyncio.get_running_loop().run_in_executor(None, self._heartbeat.join)

    def _stop_heartbeat(self) -> None:
        if self._heartbeat:
            self._heartbeat.stop()
