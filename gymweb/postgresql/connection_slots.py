"""The slots for connections of web requests, GYMWEB_WEB_CONNECTIONS in each process."""

from queue import Empty, SimpleQueue

from django.conf import settings
from prometheus_client import Counter, Gauge

from apps.accounts.outages import TooManyRequests

MOST_WAIT_SECONDS = 30.0
"""Seconds after which a request that waits for a slot is refused."""

# A SimpleQueue, because its `put` is safe in `__del__`.
_free: "SimpleQueue[None]" = SimpleQueue()
for _ in range(settings.WEB_CONNECTIONS):
    _free.put(None)

_USED = Gauge("gymweb_web_connections", "Database connections that requests of this web process use")
_USED.set_function(lambda: settings.WEB_CONNECTIONS - _free.qsize())
_WAITING = Gauge("gymweb_web_requests_waiting", "Requests of this web process that wait for a database connection")
_REFUSED = Counter("gymweb_web_requests_refused", "Requests refused after waiting for a database connection")


class Slot:
    """The right to use one connection. It ends with the object, also if a thread ends without closing its connection.

    Creating one waits for a free slot. Raise TooManyRequests after MOST_WAIT_SECONDS.
    """

    _is_taken = False

    def __init__(self) -> None:
        try:
            _free.get_nowait()
        except Empty:
            self._wait()
        self._is_taken = True

    def _wait(self) -> None:
        with _WAITING.track_inprogress():
            try:
                _free.get(timeout=MOST_WAIT_SECONDS)
            except Empty:
                _REFUSED.inc()
                raise TooManyRequests(
                    f"All {settings.WEB_CONNECTIONS} database connections of this web process "
                    f"(GYMWEB_WEB_CONNECTIONS) were in use for {MOST_WAIT_SECONDS:g} s."
                ) from None

    def __del__(self) -> None:
        if self._is_taken:
            _free.put(None)
