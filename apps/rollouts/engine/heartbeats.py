"""The heartbeat: renews the worker's lease from a thread of its own, so that a busy loop or database thread cannot
cost it."""

import threading
import time
from collections.abc import Callable

from django.conf import settings
from django.db import connection

from apps.accounts.outage_log import RetryLog
from apps.rollouts.engine.worker_leases import Vitals, reap_leases, renew_lease


class Heartbeat:
    """Renews the lease of a worker three times per lease. Calls `lost`, from its own thread, if the lease was taken."""

    def __init__(self, *, worker_id: int, vitals: Callable[[], Vitals], lost: Callable[[], None]) -> None:
        self._worker_id = worker_id
        self._vitals = vitals
        self._lost = lost
        self._log = RetryLog("renewing the lease")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it closes its connection itself."""
        self._stop.set()

    def join(self) -> None:
        self._thread.join(timeout=10)

    def _beat(self) -> None:
        # After a time in which the database failed, or hung, or this process slept, every lease may be old, and the
        # first to be back must not take what others are about to renew. So a heartbeat reaps after two beats in time.
        in_time, last = 1, time.monotonic()
        try:
            while not self._stop.wait(settings.WORKER_LEASE_SECONDS / 3):
                try:
                    if not renew_lease(worker_id=self._worker_id, vitals=self._vitals()):
                        self._lost()
                        return
                    now = time.monotonic()
                    in_time = in_time + 1 if now - last < settings.WORKER_LEASE_SECONDS / 2 else 0
                    last = now
                    if in_time >= 2:
                        reap_leases()
                    self._log.works()
                except Exception as problem:
                    # The next beat may get through; if none does, the lease runs out and the rows are taken back.
                    in_time = 0
                    self._log.failed(problem)
                    connection.close()
        finally:
            connection.close()
