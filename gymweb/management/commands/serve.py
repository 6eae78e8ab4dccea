"""`manage.py serve`: run pages, API, WebSockets and, unless disabled, a worker in one process and one event loop."""

import asyncio
import logging
import os
import signal
import sys
import tempfile
from argparse import ArgumentParser
from types import ModuleType
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils.module_loading import import_string

from apps.accounts.telemetry.exporters import start_telemetry
from apps.rollouts.management.options import read_seats
from gymweb.folders import PRIVATE_MASK
from gymweb.optional_packages import left_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from gymweb.serving import Server

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Serve GymWeb; with an embedded worker that runs rollouts unless --no-worker is given."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port, 0 for any free one (default: %(default)s)")
        parser.add_argument("--no-worker", action="store_true", help="do not start a worker")
        parser.add_argument("--seats", type=read_seats, help="seats of the embedded worker (GYMWEB_WORKER_SEATS)")

    def handle(self, *, host: str, port: int, no_worker: bool, seats: int | None, **options: Any) -> None:
        if not options["skip_checks"]:
            from apps.rollouts.checks import PROCESS_STARTS, SEVERAL_PROCESSES, WORKER_STARTS

            tags = [SEVERAL_PROCESSES] if no_worker else [Tags.database, WORKER_STARTS]
            # First, because the other checks read the tables.
            self.check(tags=[PROCESS_STARTS], include_deployment_checks=True)
            self.check(tags=tags, databases=["default"], include_deployment_checks=True)
            # The server's threads open their own connections.
            connection.close()
        _leave_out_unused_imports()
        # First, because the middleware asks whether spans are sent.
        start_telemetry("web", read_all_metrics)
        # Imported lazily: the import installs an event loop that other commands do not need.
        from daphne.endpoints import build_endpoint_description_strings

        from gymweb.serving import PortTaken, Server

        self.worker = None if no_worker else EmbeddedWorker(seats)
        self.host = host
        server = Server(
            application=import_string(settings.ASGI_APPLICATION),
            endpoints=build_endpoint_description_strings(host=host, port=port),
            started=self._started,
            drain=self._drain,
        )
        os.umask(PRIVATE_MASK)
        # Django copies large bodies once more: to this folder instead of /tmp, which may be in memory.
        tempfile.tempdir = settings.FILE_UPLOAD_TEMP_DIR
        try:
            server.run()
        except PortTaken as problem:
            raise CommandError(f"GymWeb cannot listen on {host}:{port}: {problem}") from None
        if self.worker and self.worker.failed:
            raise CommandError("The worker failed, so the server stopped; see the log.")

    def _started(self, server: "Server") -> None:
        stopping = False

        def stop() -> None:
            nonlocal stopping
            if stopping:
                # A second signal exits at once.
                os._exit(130)
            stopping = True
            server.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            server.loop.add_signal_handler(number, stop)
        _keep_connections()
        if self.worker:
            self.worker.start(server)
        port = server.listening_addresses[0][1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        shown = "127.0.0.1" if self.host in ("0.0.0.0", "::") else host  # noqa: S104
        self.stdout.write(f"GymWeb is at http://{shown}:{port}/")
        self.stdout.flush()

    async def _drain(self) -> None:
        from apps.rollouts.serving.hosting import HOST

        # Close open sessions of API clients below /gym/ properly.
        closing = asyncio.create_task(asyncio.to_thread(HOST.close))
        if self.worker:
            await self.worker.drain()
        await closing


def read_all_metrics() -> "Iterator[Metric]":
    """Return the metrics of /metrics."""
    # Imported lazily: only processes that send metrics need it before the first request.
    from apps.api.fleet.scraping import Everything

    return Everything().collect()


class EmbeddedWorker:
    """A rollout worker in the server's event loop."""

    def __init__(self, seats: int | None) -> None:
        from channels.layers import get_channel_layer

        from apps.rollouts.engine.worker import RolloutWorker

        self.failed = False
        self._worker = RolloutWorker(
            application=None, channels=["rollouts"], channel_layer=get_channel_layer(), seats=seats
        )

    def start(self, server: "Server") -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (problem := task.exception()):
                logger.critical("the worker failed", exc_info=problem)
                self.failed = True
                server.stop()

        self._task = server.loop.create_task(self._worker.handle())
        self._task.add_done_callback(ended)

    async def drain(self) -> None:
        self._worker.stop()
        await asyncio.wait([self._task])


def _keep_connections() -> None:
    """Keep the connections of finished requests. Opening one would take half of the time of an API call."""
    if connection.vendor == "postgresql":
        from gymweb.postgresql.base import DatabaseWrapper  # imports psycopg

        DatabaseWrapper.is_pooled = True


def _leave_out_unused_imports() -> None:
    """Keep Twisted and Autobahn from importing TLS, WAMP, click and accelerators: 15 MB that servers do not use.

    A proxy in front of GymWeb serves TLS, and browsers send short messages.
    """
    sys.modules.setdefault("OpenSSL", None)  # type: ignore[arg-type]
    os.environ.setdefault("AUTOBAHN_USE_NVX", "0")
    logging.getLogger("autobahn.websocket").setLevel(logging.WARNING)  # It logs that accelerators are disabled.
    # Autobahn imports these classes for its users of WAMP only.
    for name, classes in {"twisted.wamp": ["ApplicationSession"], "wamp.message": ["Message", "Welcome"]}.items():
        stub = ModuleType(f"autobahn.{name}")
        vars(stub).update({one: type(one, (), {}) for one in classes})
        sys.modules.setdefault(stub.__name__, stub)
    with left_out("click"):
        import autobahn.util  # noqa: F401
