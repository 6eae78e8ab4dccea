"""What goes wrong outside every view: a problem document for programs, a page for people."""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponseBase
from django.views import defaults

from apps.api.problems import problem_response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_for_programs(request):
        return problem_response(request, HTTPStatus.BAD_REQUEST, "bad-request", "This request cannot be read.")
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    if _is_for_programs(request):
        detail = "Something broke here. The server's log says what."
        return problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "server-error", detail)
    return defaults.server_error(request)


def _is_for_programs(request: HttpRequest) -> bool:
    return request.path.startswith("/api/v1/")
