"""The current request of this thread or task, with its id, for logs, error pages and audit entries."""

import re
import secrets
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

HEADER = "X-Request-ID"
MAX_ID = 64
_SAFE_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{7,{MAX_ID - 1}}}")

# None in workers and commands.
CURRENT_REQUEST: ContextVar[HttpRequest | None] = ContextVar("current request", default=None)


def make_request_id(given: str = "") -> str:
    """Return the id given by a trusted proxy if it is safe, else a new one of 32 hexadecimal digits."""
    if settings.TRUSTED_PROXIES and _SAFE_ID.fullmatch(given):
        return given
    return secrets.token_hex(16)


def request_id_of(request: HttpRequest | None) -> str:
    """Return the id of a request. Empty outside of requests, and if RequestIdMiddleware did not run."""
    found: str = getattr(request, "request_id", "")
    return found


class RequestIdMiddleware:
    """Give each request an id, return it in a header, and make the request available to all code that serves it.

    Must be the first middleware, so that log lines and responses of all others have the id.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request.request_id = make_request_id(request.headers.get(HEADER, ""))  # type: ignore[attr-defined]
        if self.is_async:
            return self._answer(request)
        token = CURRENT_REQUEST.set(request)
        try:
            return _with_id(request, self.get_response(request))
        finally:
            CURRENT_REQUEST.reset(token)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        token = CURRENT_REQUEST.set(request)
        try:
            return _with_id(request, await self.get_response(request))
        finally:
            # Reset explicitly: async_to_sync copies the context of its task to the caller.
            CURRENT_REQUEST.reset(token)


def _with_id(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    response.headers[HEADER] = request_id_of(request)
    return response
