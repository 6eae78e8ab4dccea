"""Base of the commands that serve something on a port of its own."""

import asyncio
import signal
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from apps.gym.calls.outbound import Outbound
from apps.gym.errors import GymError
from apps.gym.serving.own_port import serve_port
from apps.gym.serving.served_environment import CannotServe
from apps.gym.serving.served_request import Served
from apps.policies.policy_clients import open_outbound

MIB = 1024**2


class PortCommand(BaseCommand):
    """A subclass defines what is served (`connect`), the timeout of a response, and the YAML for the client."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=0, help="port (default: any free one)")
        parser.add_argument(
            "--host",
            default="127.0.0.1",
            help="address to listen on (default: %(default)s). It has no authentication",
        )
        parser.add_argument(
            "--max-body", type=int, default=64, metavar="MIB", help="largest body (default: %(default)s)"
        )

    def serve(
        self,
        connect: Callable[[Outbound], Awaitable[Served]],
        *,
        host: str,
        port: int,
        max_body: int,
        seconds: float,
        explain: Callable[[str, int], str],
    ) -> None:
        """Serve until SIGTERM or SIGINT. Raise CommandError if it cannot be served."""
        connections.close_all()  # No further queries follow.
        try:
            uvloop.run(
                self._serve(connect, host=host, port=port, max_body=max_body * MIB, seconds=seconds, explain=explain)
            )
        except OSError as error:
            raise CommandError(f"Cannot listen on {host}:{port}: {error.strerror or error}") from None
        except (CannotServe, GymError) as problem:
            raise CommandError(str(problem)) from None

    async def _serve(self, connect: Any, *, host: str, port: int, explain: Any, **limits: Any) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)

        def started(taken: int) -> None:
            shown = f"[{host}]" if ":" in host else host
            self.stdout.write(f"Serving at http://{shown}:{taken}\n\n{explain(host, taken)}")
            self.stdout.flush()

        outbound = open_outbound()
        try:
            served = await connect(outbound)
            await serve_port(served, host=host, port=port, stop=stop, started=started, **limits)
        finally:
            await outbound.close()


def yaml_block(*, kind: str, name: str, server: str, at: tuple[str, int], more: str = "") -> str:
    """Return the YAML configuration for the other side: a server with a known address that it does not start."""
    return (
        f"# for the other side's configuration:\n{name}:\n  {kind}:\n    {server}:\n      entrypoint: app.py\n"
        f"      host: {at[0]}\n      port: {at[1]}\n{more}"
    )
