"""Check the origin and path of WebSocket handshakes."""

from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from channels.routing import URLRouter
from channels.security.websocket import WebsocketDenier
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError
from django.urls import URLPattern, re_path

from apps.accounts.outage_log import DATABASE
from apps.accounts.outages import is_outage
from apps.api.framework.request_origins import is_own_origin
from apps.dashboard.live.consumers import UNAVAILABLE

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

_SCHEMES = {"ws": "http", "wss": "https"}


def is_allowed_origin(scope: dict[str, Any]) -> bool:
    """Return True if the page of a handshake may connect.

    Handshakes without an Origin header are rejected, because every browser sends one.
    """
    scheme = _SCHEMES[scope.get("scheme", "ws")]
    request = ASGIRequest({**scope, "method": "GET", "scheme": scheme}, BytesIO())
    return is_own_origin(request, request.headers.get("Origin", ""))


class OriginGuard:
    """Reject handshakes from other origins with 403.

    Closes sockets if the database is unavailable; the page reconnects later.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        application = self.application if is_allowed_origin(scope) else WebsocketDenier()
        try:
            await application(scope, receive, send)
        except DatabaseError as problem:
            if not is_outage(problem):
                raise
            DATABASE.failed("live updates", problem)
            await send({"type": "websocket.close", "code": UNAVAILABLE})


class SocketRouter:
    """Route to a consumer. Unknown paths are rejected with 403; otherwise, Daphne would log a traceback."""

    def __init__(self, routes: list[URLPattern]) -> None:
        self.routes = routes
        self._router = URLRouter([*routes, re_path("", WebsocketDenier.as_asgi())])

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        # Channels also raises for paths outside the root path, which clients can set in a header.
        is_outside = not scope["path"].startswith(scope.get("root_path", ""))
        await (WebsocketDenier() if is_outside else self._router)(scope, receive, send)
