"""Serve on a separate port as NeMo Gym's client expects: routes at the root, plain HTTP, no API key."""

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web

from apps.gym.serving.served_request import Answer, IncomingRequest, Served, answer_always, plain_path

SHUTDOWN_SECONDS = 10.0
TIDY_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 75.0


def make_application(served: Served, *, max_body: int, seconds: float) -> web.Application:
    """Return the web application. `max_body` is in bytes; `seconds` is the time limit of each response."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if "Origin" in request.headers:
            # Only browsers send this header. This port has no API keys, so any website could send requests here.
            return web.json_response({"detail": "This port serves an API, not pages."}, status=403)
        try:
            # A stalled upload must not hold its connection forever.
            async with asyncio.timeout(seconds):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return web.json_response({"detail": f"The body is larger than {max_body:,} bytes."}, status=413)
        except TimeoutError:
            return web.json_response({"detail": "The request body timed out."}, status=408)
        incoming = IncomingRequest(
            method=request.method,
            path=plain_path(request.path),
            body=body,
            session=request.cookies.get(served.cookie, "") if served.cookie else "",
        )
        return _reply(served, await answer_always(served, incoming, seconds=seconds))

    application = web.Application(client_max_size=max_body)
    application.router.add_route("*", "/{path:.*}", handle)
    return application


def _reply(served: Served, answer: Answer) -> web.Response:
    reply = web.Response(
        body=answer.body, status=answer.status, content_type=answer.content_type, headers=answer.headers or None
    )
    if answer.session and served.cookie:
        reply.set_cookie(served.cookie, answer.session, path="/", httponly=True, samesite="Lax")
    return reply


async def serve_port(
    served: Served,
    *,
    host: str,
    port: int,
    max_body: int,
    seconds: float,
    stop: asyncio.Event,
    started: Callable[[int], None],
) -> None:
    """Serve until `stop` is set. `started` receives the port. Raise OSError if the port is not available."""
    runner = web.AppRunner(
        make_application(served, max_body=max_body, seconds=seconds),
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        # Cancel attempts of clients that disconnect.
        handler_cancellation=True,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        started(runner.addresses[0][1])
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIDY_SECONDS):
                    await stop.wait()
            await served.tidy()
    finally:
        await runner.cleanup()
        await served.close()
