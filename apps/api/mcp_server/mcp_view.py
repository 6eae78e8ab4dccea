"""The MCP endpoint: streamable HTTP without sessions, each request with a JSON response.

The official package implements the protocol, so all protocol versions that it knows are supported.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpResponse
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.permissions import Permission
from apps.api.fleet.scraping import AnyFormat
from apps.api.framework.problems import Problem
from apps.api.framework.request_bodies import UntouchedParser
from apps.api.framework.request_origins import is_own_origin

MAX_BODY = 256 * 1024
"""Maximum bytes of a request. The longest argument, a comment, has 10,000 characters."""
_HEADERS = ("accept", "content-type", "host", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id")


class McpView(APIView):
    """Answer one MCP request. GET would open a stream of messages, which this server never sends."""

    # The least that a tool needs: annotators have no tools, because these would show what blind queues hide.
    permissions = {"post": Permission.READ_TASKS}
    content_negotiation_class = AnyFormat
    parser_classes: list[type[BaseParser]] = [UntouchedParser]
    schema = None

    def post(self, request: Request) -> HttpResponse:
        origin = request.headers.get("Origin", "")
        if origin and not is_own_origin(request._request, origin):
            detail = "Pages of other sites cannot use this endpoint. Add the site to GYMWEB_TRUSTED_ORIGINS."
            raise Problem(HTTPStatus.FORBIDDEN, "permission-denied", detail)
        # Imported here, because most processes answer no MCP request.
        from apps.api.mcp_server.tool_server import Answering

        answering = Answering(request)
        status, content_type, content = async_to_sync(_exchange)(answering.server(), _scope(request), _read(request))
        if answering.failure is not None:
            raise answering.failure
        return HttpResponse(content, status=status, content_type=content_type)


def _read(request: Request) -> bytes:
    """Return the body. Raise Problem if it is too large."""
    body = request._request.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        detail = f"The request is larger than {MAX_BODY:,} bytes. Send a shorter one."
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", detail)
    return body


def _scope(request: Request) -> dict[str, Any]:
    given = {name.lower(): value for name, value in request.headers.items()}
    headers = [(name.encode(), given[name].encode("latin-1", "replace")) for name in _HEADERS if name in given]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": b"",
        "headers": headers,
    }


async def _exchange(server: Any, scope: dict[str, Any], body: bytes) -> tuple[int, str, bytes]:
    """Pass a request to the package. Return status, content type and content of its response."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    answered = asyncio.Event()
    pending = [{"type": "http.request", "body": body, "more_body": False}]
    started: dict[str, Any] = {}
    content = bytearray()

    async def receive() -> dict[str, Any]:
        if pending:
            return pending.pop()
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
            return
        content.extend(message.get("body", b""))
        if not message.get("more_body"):
            answered.set()

    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=MAX_BODY)
    async with manager.run():
        await manager.handle_request(scope, receive, send)  # type: ignore[arg-type]
    headers = {name.decode().lower(): value.decode() for name, value in started["headers"]}
    return started["status"], headers.get("content-type", "text/plain"), bytes(content)
