"""What goes wrong outside every view: a problem document for programs, a page for people."""

import sys
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views import defaults

from apps.accounts.disk_space import Place, Shortage, find_shortage, note_error
from apps.accounts.outages import RETRY_SECONDS, is_outage
from apps.api.framework.problems import problem_response
from apps.dashboard.chrome.page_answers import answer_full_disk


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_for_programs(request):
        return problem_response(request, HTTPStatus.BAD_REQUEST, "bad-request", "This request cannot be read.")
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Everything that nothing caught ends here, whatever raised it: a view, the API, or a middleware before them."""
    error = sys.exc_info()[1]
    is_full = note_error(error)
    # A database server that ended when its disk was full does not answer: its disk is still the reason.
    if is_full or (is_outage(error) and find_shortage(Place.DATABASE)):
        return disk_full(request, find_shortage())
    if is_outage(error):
        return _unavailable(request)
    if _is_for_programs(request):
        detail = "Something broke here. The server's log says what."
        return problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "server-error", detail)
    return defaults.server_error(request)


def _unavailable(request: HttpRequest) -> HttpResponseBase:
    status = HTTPStatus.SERVICE_UNAVAILABLE
    response: HttpResponse
    if _is_for_programs(request):
        detail = f"The database does not answer. Try again in {RETRY_SECONDS} seconds."
        response = problem_response(request, status, "database-away", detail)
    elif request.path == "/metrics":
        response = HttpResponse("The database does not answer.\n", status=status, content_type="text/plain")
    else:
        response = defaults.server_error(request, template_name="503.html")
        response.status_code = status
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def disk_full(request: HttpRequest, shortage: Shortage | None) -> HttpResponseBase:
    """Answer 507. There is no shortage where the disk has got space since."""
    status = HTTPStatus.INSUFFICIENT_STORAGE
    detail = str(shortage or "A disk of the server was full a moment ago. Try again.")
    response: HttpResponse
    if _is_for_programs(request):
        response = problem_response(request, status, "disk-full", detail)
    elif request.path == "/metrics":
        response = HttpResponse(f"{detail}\n", status=status, content_type="text/plain")
    else:
        response = answer_full_disk(request, detail)
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _is_for_programs(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/v1/", "/gym/"))
