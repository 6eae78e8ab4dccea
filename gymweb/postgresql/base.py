"""Django's PostgreSQL backend, with connections that a web process keeps for later requests.

Each request has its own thread, so Django cannot reuse a connection with CONN_MAX_AGE. Django's pool connects in the
background: while the server is down, requests would wait for it instead of failing at once.

A web process uses at most GYMWEB_WEB_CONNECTIONS connections for requests. Further requests wait, because a burst would
otherwise use up the connections of the server.
"""

import select
import time
from collections import deque
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg.pq import ExecStatus, TransactionStatus

from gymweb.postgresql.connection_slots import Slot

MOST_KEPT = 8
CHECK_SECONDS = 5.0
"""Time limit in seconds for finding a kept connection that works, as for opening one."""
MAX_AGE_SECONDS = 300.0
"""Age at which a connection is closed instead of kept, so that a process finds the new server after a failover."""

_kept: "deque[tuple[float, psycopg.Connection[Any]]]" = deque()
"""Idle connections with their opening times, last used last. Operations on a deque are thread-safe."""


class DatabaseWrapper(base.DatabaseWrapper):
    is_pooled = False
    """True: wait for a slot, use a kept connection if there is one, and keep it instead of closing it.

    `manage.py serve` sets it for all threads. A thread that changes settings of its session unsets it for itself.
    """

    def get_new_connection(self, conn_params: dict[str, Any]) -> "psycopg.Connection[Any]":
        self._slot = Slot() if self.is_pooled else None
        if self.is_pooled and (kept := _take()):
            self._opened_at, connection = kept
            self.isolation_level = connection.isolation_level or psycopg.IsolationLevel.READ_COMMITTED
            return connection
        self._opened_at = time.monotonic()
        try:
            opened: psycopg.Connection[Any] = super().get_new_connection(conn_params)
        except BaseException:
            self._slot = None
            raise
        return opened

    def _close(self) -> None:
        if self.connection is None:
            return
        try:
            self._keep_or_close()
        finally:
            # After the connection was kept or closed, so that the process never exceeds its limit.
            self._slot = None

    def _keep_or_close(self) -> None:
        is_young = time.monotonic() - self._opened_at < MAX_AGE_SECONDS
        if self.is_pooled and self._is_clean() and is_young and len(_kept) < MOST_KEPT:
            _kept.append((self._opened_at, self.connection))
        else:
            super()._close()  # type: ignore[misc]

    def _is_clean(self) -> bool:
        """Return True if the connection works and is in no transaction."""
        is_idle = self.connection.pgconn.transaction_status == TransactionStatus.IDLE
        return is_idle and self.connection.autocommit and not self.in_atomic_block


def _take() -> "tuple[float, psycopg.Connection[Any]] | None":
    """Return the connection that was used last and still works. Close broken ones."""
    end = time.monotonic() + CHECK_SECONDS
    while True:
        try:
            opened_at, connection = _kept.pop()
        except IndexError:
            return None
        if _answers(connection, max(0.0, end - time.monotonic())):
            return opened_at, connection
        connection.close()


def _answers(connection: "psycopg.Connection[Any]", seconds: float) -> bool:
    """Return True if the server answers an empty query in time. A query of psycopg has no time limit."""
    server, polled = connection.pgconn, select.poll()
    try:
        server.send_query(b"")
        polled.register(server.socket, select.POLLIN)
        if not polled.poll(seconds * 1000):
            return False
        server.consume_input()
        result = server.get_result()
        return result is not None and result.status == ExecStatus.EMPTY_QUERY and server.get_result() is None
    except psycopg.Error:
        return False
