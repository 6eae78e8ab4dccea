"""Responses to errors outside of all views: a problem document for programs, a page for people."""

import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views import defaults

from apps.accounts.disk_space import Place, Shortage, find_shortage, note_error
from apps.accounts.outages import RETRY_SECONDS, is_outage
from apps.api.framework.problems import problem_response
from apps.dashboard.chrome.page_answers import answer_full_disk


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_for_programs(request):
        return problem_response(request, HTTPStatus.BAD_REQUEST, "bad-request", "The request cannot be parsed.")
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Handle every uncaught error of views, the API and middleware."""
    error = sys.exc_info()[1]
    is_full = note_error(error)
    # A database server that stopped on a full disk does not respond; the full disk is still the reason.
    if is_full or (is_outage(error) and find_shortage(Place.DATABASE)):
        return disk_full(request, find_shortage())
    if is_outage(error):
        return _unavailable(request)
    if _is_for_programs(request):
        detail = "Internal server error. See the server log."
        return problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "server-error", detail)
    return defaults.server_error(request)


def _unavailable(request: HttpRequest) -> HttpResponseBase:
    said = "The database is unavailable."
    detail = f"{said} Try again in {RETRY_SECONDS} seconds."
    page = partial(defaults.server_error, request, template_name="503.html")
    return _ask_again(request, HTTPStatus.SERVICE_UNAVAILABLE, "database-away", detail, said=said, page=page)


def disk_full(request: HttpRequest, shortage: Shortage | None) -> HttpResponseBase:
    """Answer 507. There is no shortage where the disk has got space since."""
    detail = str(shortage or "A disk of the server was full. Try again.")
    page = partial(answer_full_disk, request, detail)
    return _ask_again(request, HTTPStatus.INSUFFICIENT_STORAGE, "disk-full", detail, said=detail, page=page)


def _ask_again(
    request: HttpRequest, status: HTTPStatus, kind: str, detail: str, *, said: str, page: Callable[[], HttpResponse]
) -> HttpResponseBase:
    """Answer programs with a problem, the reader of metrics with what is `said`, and people with the page."""
    response: HttpResponse
    if _is_for_programs(request):
        response = problem_response(request, status, kind, detail)
    else:
        is_metrics = request.path == "/metrics"
        response = HttpResponse(f"{said}\n", content_type="text/plain") if is_metrics else page()
    response.status_code = status
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _is_for_programs(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/v1/", "/gym/"))
