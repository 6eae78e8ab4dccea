"""What goes wrong outside every view: a problem document for programs, a page for people."""

import sys
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views import defaults

from apps.accounts.outages import RETRY_SECONDS, is_outage
from apps.api.problems import problem_response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_for_programs(request):
        return problem_response(request, HTTPStatus.BAD_REQUEST, "bad-request", "This request cannot be read.")
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Everything that nothing caught ends here, whatever raised it: a view, the API, or a middleware before them."""
    if is_outage(sys.exc_info()[1]):
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


def _is_for_programs(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/v1/", "/gym/"))
