"""The ASGI application: pages and API over HTTP, live updates over WebSockets."""

import os
from typing import IO, Any

import django
from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponseBase

from apps.accounts.outages import release_connection, run_query

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gymweb.settings")


class SpooledBodyHandler(ASGIHandler):
    """Use the request body that the server has spooled to disk. Django would copy it to another file.

    Release the database connection before the response is sent, so that slow clients do not hold it.
    """

    async def read_body(self, receive: Any) -> IO[bytes]:
        taken: IO[bytes] | None = receive.take_body() if hasattr(receive, "take_body") else None
        return taken or await super().read_body(receive)

    async def run_get_response(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await super().run_get_response(request)
        await run_query(release_connection)
        return response


django.setup(set_prefix=False)
http = SpooledBodyHandler()

# Imports models, which requires Django to be set up.
from apps.dashboard.live.socket_routes import websocket_urlpatterns  # noqa: E402
from apps.rollouts.serving.capture_routes import CaptureRoutes  # noqa: E402
from gymweb.sockets import OriginGuard, SocketRouter  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": CaptureRoutes(http),
        "websocket": OriginGuard(AuthMiddlewareStack(SocketRouter(websocket_urlpatterns))),
    }
)
