"""Error responses outside of views: a problem document for API clients, a page for browsers."""

import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views import defaults

from apps.accounts.disk_space import Place, Shortage, find_shortage, note_error
from apps.accounts.outages import RETRY_SECONDS, TooManyRequests, is_outage
from apps.api.framework.problems import problem_response
from apps.dashboard.chrome.page_answers import answer_refusal, render_bare


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_api_request(request):
        return problem_response(request, HTTPStatus.BAD_REQUEST, "bad-request", "The request cannot be parsed.")
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Handle every uncaught error of views, the API and middleware."""
    error = sys.exc_info()[1]
    is_full = note_error(error)
    # A database server that stopped because of its full disk does not respond.
    if is_full or (is_outage(error) and find_shortage(Place.DATABASE)):
        return disk_full(request, find_shortage())
    if isinstance(error, TooManyRequests):
        return _busy(request)
    if is_outage(error):
        return _unavailable(request)
    if _is_api_request(request):
        detail = "Internal server error. See the server log."
        return problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "server-error", detail)
    return render_bare("500.html", request, HTTPStatus.INTERNAL_SERVER_ERROR)


def _unavailable(request: HttpRequest) -> HttpResponseBase:
    plain_text = "The database is unavailable."
    detail = f"{plain_text} Try again in {RETRY_SECONDS} seconds."
    status = HTTPStatus.SERVICE_UNAVAILABLE
    page = partial(render_bare, "503.html", request, status)
    return _retry_later(request, status, "database-away", detail, plain_text=plain_text, page=page)


def _busy(request: HttpRequest) -> HttpResponseBase:
    detail = f"Too many requests are in progress. Try again in {RETRY_SECONDS} seconds."
    status = HTTPStatus.SERVICE_UNAVAILABLE
    page = partial(answer_refusal, request, status, "Server busy", detail)
    return _retry_later(request, status, "server-busy", detail, plain_text=detail, page=page)


def disk_full(request: HttpRequest, shortage: Shortage | None) -> HttpResponseBase:
    """Respond with 507. `shortage` is None if space is available again."""
    detail = str(shortage or "A disk of the server was full. Try again.")
    status = HTTPStatus.INSUFFICIENT_STORAGE
    page = partial(answer_refusal, request, status, "Disk full", detail)
    return _retry_later(request, status, "disk-full", detail, plain_text=detail, page=page)


def _retry_later(
    request: HttpRequest,
    status: HTTPStatus,
    kind: str,
    detail: str,
    *,
    plain_text: str,
    page: Callable[[], HttpResponse],
) -> HttpResponseBase:
    """Return a problem document for API clients, plain text for /metrics, and a page for browsers."""
    response: HttpResponse
    if _is_api_request(request):
        response = problem_response(request, status, kind, detail)
    else:
        is_metrics = request.path == "/metrics"
        response = HttpResponse(f"{plain_text}\n", content_type="text/plain") if is_metrics else page()
    response.status_code = status
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _is_api_request(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/v1/", "/gym/", "/otlp/")) or request.path in ("/mcp", "/mcp/")
