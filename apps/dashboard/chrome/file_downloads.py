"""Files that people download from pages."""

from http import HTTPStatus
from pathlib import Path

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from apps.exports.ranged_downloads import stream_archive, stream_file
from apps.exports.tar_archives import Archive


def send_file(
    request: HttpRequest, path: Path, *, filename: str, content_type: str, sha256: str = ""
) -> HttpResponseBase:
    """As `stream_file`, with words for whoever asks for bytes that the file does not have."""
    return _in_words(stream_file(request, path, filename=filename, content_type=content_type, sha256=sha256))


def send_archive(request: HttpRequest, archive: Archive, *, filename: str) -> HttpResponseBase:
    """As `stream_archive`, likewise."""
    return _in_words(stream_archive(request, archive, filename=filename))


def _in_words(answer: HttpResponseBase) -> HttpResponseBase:
    if answer.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return answer
    size = answer["Content-Range"].rpartition("/")[2]
    told = f"The file has {int(size):,} bytes, and none where the range begins."
    refusal = HttpResponse(told, status=answer.status_code, content_type="text/plain; charset=utf-8")
    for name in ("Content-Range", "Accept-Ranges", "ETag", "Last-Modified", "Cache-Control", "X-Content-Type-Options"):
        refusal[name] = answer[name]
    return refusal
