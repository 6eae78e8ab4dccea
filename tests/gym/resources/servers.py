"""A resource server whose answers a test writes down, on a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.calls.retries import Pauses
from apps.gym.resources.nemo_gym_http import HttpResourceServer
from apps.gym.resources.server_calls import Caller

BROKEN = object()
"""An answer that is none: the connection is dropped."""
SLOW = object()
"""An answer that comes after the caller has gone."""


class Answers:
    """`script[path]` lists answers in their order, the last for ever: JSON, `web.Response`, BROKEN or SLOW."""

    def __init__(self, **script: Any) -> None:
        self.script: dict[str, list[Any]] = {
            name: given if isinstance(given, list) else [given] for name, given in script.items()
        }
        self.seen: list[tuple[str, Any, str]] = []
        self.authorizations: list[str] = []

    def bodies(self, path: str) -> list[Any]:
        return [body for given, body, _ in self.seen if given == path]

    def cookies(self) -> list[str]:
        return [cookie for _, _, cookie in self.seen]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.raw_path.removeprefix("/")
        body = await request.json() if request.can_read_body else None
        self.seen.append((path, body, request.headers.get("Cookie", "")))
        self.authorizations.append(request.headers.get("Authorization", ""))
        known = self.script.get(path or "root")
        if known is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        given = known.pop(0) if len(known) > 1 else known[0]
        if given is BROKEN:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if given is SLOW:
            await asyncio.sleep(30)
        if isinstance(given, list | tuple):
            status, text, headers = given
            content = {"body": text} if isinstance(text, bytes) else {"text": text}
            return web.Response(status=status, headers=headers, **content)
        return web.json_response(given)


@asynccontextmanager
async def serve(answers: Answers, *, adapter: Any = HttpResourceServer, **options: Any) -> AsyncIterator[Any]:
    """The adapter, connected to a server that gives these answers."""
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_route("*", "/{path:.*}", answers.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    outbound = Outbound(OutboundPolicy(options.pop("allow", ["127.0.0.1"])))
    of_the_server = {name: options.pop(name) for name in ("verify_timeout", "verifies", "survey") if name in options}
    if adapter is HttpResourceServer:
        of_the_server.setdefault("verify_timeout", 5.0)
    call = {"base_url": url, "call_timeout": 5.0, "max_tries": 3, "pauses": Pauses(first=0.001), **options}
    try:
        yield adapter(Caller(outbound, name="lab", **call), **of_the_server)
    finally:
        await outbound.close()
        await runner.cleanup()
