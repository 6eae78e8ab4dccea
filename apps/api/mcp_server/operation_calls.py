"""Call operations of the API for a tool, with the permissions of the MCP request."""

from collections.abc import Mapping
from functools import cache, partial
from http import HTTPStatus
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.urls import ResolverMatch, resolve, reverse
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from apps.accounts.disk_space import DiskFull, Place, check_space
from apps.accounts.middleware import AuditMiddleware
from apps.accounts.permissions import Permission

_KEPT = (
    "HTTP_HOST",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_PROTO",
    "REMOTE_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
)
"""Headers that an operation needs from the MCP request: client address and host."""
_SAMPLE = "1"


class ToolError(Exception):
    """Raised if a tool cannot answer. The message tells the agent the reason and the remedy."""


class ApiError(ToolError):
    """Raised for a problem document of the API. Agents get the message between markers: it may quote stored texts."""


class Operation(NamedTuple):
    """An operation of the API: the name of its route, its method, and whether its path has the number of a row."""

    route: str
    method: str = "get"
    numbered: bool = False

    @property
    def noun(self) -> str:
        return self.route.partition("-")[0]

    @property
    def path(self) -> str:
        return self.path_of(_SAMPLE if self.numbered else None)

    @property
    def match(self) -> ResolverMatch:
        return resolve(self.path)

    @property
    def permission(self) -> Permission:
        return _permission_of(self)

    def path_of(self, number: object) -> str:
        return reverse(f"api:{self.route}", kwargs={} if number is None else {"pk": number})


@cache
def _permission_of(operation: Operation) -> Permission:
    view: Any = operation.match.func
    permission: Permission = view.cls.permissions[view.actions[operation.method]]
    return permission


class SameCaller(BaseAuthentication):
    """Authenticate an operation as the caller of its MCP request."""

    def authenticate(self, request: Request) -> tuple[Any, Any]:
        caller: tuple[Any, Any] = request._request.caller  # type: ignore[attr-defined]
        return caller


class Api:
    """The API as the sender of an MCP request may use it."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def call(
        self,
        operation: Operation,
        number: int | None = None,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        idempotency_key: str = "",
    ) -> Any:
        """Return the JSON that the operation returns. Raise ApiError for a problem document.

        The operation filters, checks permissions and writes audit entries as for a request of the API. Only the rate
        limits do not apply, because the MCP request has already counted.
        """
        if body is not None and f"api:{operation.route}" not in settings.FULL_DISK_ROUTES:
            try:
                check_space(Place.DATABASE)
            except DiskFull as full:
                raise ToolError(str(full)) from None
        request = self._request(operation, number, query or {}, body, idempotency_key)
        view: Any = request.resolver_match.func  # type: ignore[union-attr]
        options = {**view.initkwargs, "authentication_classes": [SameCaller], "throttle_classes": []}
        run = partial(view.cls.as_view(view.actions, **options), **request.resolver_match.kwargs)  # type: ignore[union-attr]
        response: Any = AuditMiddleware(run)(request)
        if hasattr(response, "render"):
            response.render()
        answer = orjson.loads(response.content)
        if response.status_code == HTTPStatus.NOT_FOUND and number is not None:
            raise ToolError(f"There is no {operation.noun} with the id {number}. List tools return the existing ids.")
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            raise ApiError(_explain(answer))
        return answer

    def _request(
        self,
        operation: Operation,
        number: int | None,
        query: Mapping[str, object],
        body: Mapping[str, object] | None,
        idempotency_key: str,
    ) -> HttpRequest:
        outer = self.request._request
        path = operation.path_of(number)
        content = b"" if body is None else orjson.dumps(body)
        meta: dict[str, Any] = {name: outer.META[name] for name in _KEPT if name in outer.META}
        meta |= {
            "REQUEST_METHOD": operation.method.upper(),
            "PATH_INFO": path,
            "QUERY_STRING": urlencode([(name, _text(value)) for name, value in query.items() if value is not None]),
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": BytesIO(content),
            "wsgi.url_scheme": outer.scheme,
        }
        if idempotency_key:
            meta["HTTP_IDEMPOTENCY_KEY"] = idempotency_key
        request = WSGIRequest(meta)
        request.resolver_match = resolve(path)
        request.caller = (self.request.user, self.request.auth)  # type: ignore[attr-defined]
        return request


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _explain(problem: Mapping[str, Any]) -> str:
    errors = [(one.get("pointer", "").lstrip("/?"), one["message"]) for one in problem.get("errors", ())]
    texts = [f"{place}: {message}" if place else message for place, message in errors]
    return " ".join(texts) or str(problem["detail"])
