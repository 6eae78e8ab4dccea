"""File downloads from pages."""

from http import HTTPStatus
from pathlib import Path

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from apps.exports.ranged_downloads import stream_archive, stream_file
from apps.exports.tar_archives import Archive


def send_file(
    request: HttpRequest, path: Path, *, filename: str, content_type: str, sha256: str = ""
) -> HttpResponseBase:
    """Send a file like `stream_file`, with an error message for ranges outside the file."""
    return _in_words(stream_file(request, path, filename=filename, content_type=content_type, sha256=sha256))


def send_archive(request: HttpRequest, archive: Archive, *, filename: str) -> HttpResponseBase:
    """Send an archive like `stream_archive`, with an error message."""
    return _in_words(stream_archive(request, archive, filename=filename))


def _in_words(answer: HttpResponseBase) -> HttpResponseBase:
    if answer.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return answer
    size = answer["Content-Range"].rpartition("/")[2]
    told = f"The file has {int(size):,} bytes; the range begins after its end."
    refusal = HttpResponse(told, status=answer.status_code, content_type="text/plain; charset=utf-8")
    for name in ("Content-Range", "Accept-Ranges", "ETag", "Last-Modified", "Cache-Control", "X-Content-Type-Options"):
        refusal[name] = answer[name]
    return refusal
