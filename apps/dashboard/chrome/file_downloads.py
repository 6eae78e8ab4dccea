"""File downloads from pages."""

from http import HTTPStatus

from django.http import HttpResponse, HttpResponseBase


def explain_range(answer: HttpResponseBase) -> HttpResponseBase:
    """Return the response, with a message if the requested range is outside the file."""
    if answer.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return answer
    size = answer["Content-Range"].rpartition("/")[2]
    told = f"The file has {int(size):,} bytes; the range begins after its end."
    refusal = HttpResponse(told, status=answer.status_code, content_type="text/plain; charset=utf-8")
    for name in ("Content-Range", "Accept-Ranges", "ETag", "Last-Modified", "Cache-Control", "X-Content-Type-Options"):
        refusal[name] = answer[name]
    return refusal
