"""Parse request bodies: JSON, and streamed files."""

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import IO, Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework.exceptions import ErrorDetail, ParseError, UnsupportedMediaType, ValidationError
from rest_framework.parsers import BaseParser, JSONParser, MultiPartParser
from rest_framework.request import Request

from apps.api.framework.problems import Problem
from apps.gym.storable import Path
from apps.gym.strict_json import JsonRefused, load_strict

READ_BYTES = 256 * 1024


class BoundedJSONParser(JSONParser):
    """Parse JSON, rejecting values that cannot be processed or stored."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            # Ignore the charset: JSON is UTF-8, and some Python codecs do not return text.
            text = stream.read().decode()
        except UnicodeDecodeError as error:
            raise ParseError(f"JSON parse error - byte {error.start + 1} is not UTF-8.") from None
        try:
            return load_strict(text)
        except JsonRefused as refusal:
            if refusal.code == "not_json":
                raise ParseError(f"JSON parse error - {refusal.message}") from None
            raise ValidationError(nest_error(refusal.path, ErrorDetail(refusal.message, code=refusal.code))) from None


def nest_error(path: Path, error: ErrorDetail) -> Any:
    """Nest the error by its path in the body, from which its JSON Pointer is derived."""
    nested: Any = [error]
    for step in reversed(path):
        nested = {str(step): nested}
    return nested


class UntouchedParser(BaseParser):
    """Leave the body to the view.

    DRF parses the body on the first access to `request.POST`, which happens in the CSRF check.
    """

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        return {}


RAW_TYPES = (
    "application/x-ndjson",
    "application/jsonl",
    "application/json",
    "text/csv",
    "text/tab-separated-values",
    "application/vnd.apache.parquet",
    "application/gzip",
    "application/zstd",
    "application/octet-stream",
)
"""Accepted media types of files. The actual format is detected from the content."""
RAW_PARSERS: list[type[BaseParser]] = [type("FileParser", (UntouchedParser,), {"media_type": one}) for one in RAW_TYPES]
FILE_PARSERS: list[type[BaseParser]] = [MultiPartParser, *RAW_PARSERS]


def open_body(request: Request, *, filename: str) -> tuple[Any, str]:
    """Return the uploaded file and its name: the form field `file`, or the body itself. Raise ValidationError."""
    refuse_large_body(request)
    media_type = _media_type(request)
    if is_form(request):
        files: Mapping[str, Any] = request.FILES
        if "file" not in files:
            raise ValidationError({"file": "Send the file as the form field “file”."}, code="required")
        return files["file"], filename or files["file"].name
    if media_type not in RAW_TYPES:
        raise UnsupportedMediaType(request.content_type)
    # Not DRF's `request.stream`, which is None for a chunked body.
    return request._request, filename or f"rows{_ENDINGS.get(media_type, '')}"


_ENDINGS = {"text/csv": ".csv", "text/tab-separated-values": ".tsv", "application/vnd.apache.parquet": ".parquet"}


@contextmanager
def open_files(request: Request) -> Iterator[list[tuple[str, IO[bytes]]]]:
    """Yield (name, file) for each uploaded file. The files are seekable."""
    with tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR) as spool:
        if is_form(request):
            refuse_large_body(request)
            sent = request.FILES.getlist("file")
            if not sent:
                raise ValidationError({"file": "Send the files as the form field “file”."}, code="required")
            yield [(str(file.name), file) for file in sent]
            return
        stream, filename = open_body(request, filename="")
        shutil.copyfileobj(stream, spool, READ_BYTES)
        yield [(filename, spool)]


def digest_form(request: Request) -> bytes:
    """Return the SHA-256 of all fields and files of a form, ordered by name."""
    refuse_large_body(request)
    digest = hashlib.sha256()
    for name, values in sorted(request.POST.lists()):
        digest.update(repr((name, values)).encode())
    for name, files in sorted(request.FILES.lists()):
        for file in files:
            content = hashlib.sha256()
            for block in file.chunks():
                content.update(block)
            file.seek(0)
            digest.update(repr((name, file.name, file.content_type, content.hexdigest())).encode())
    return digest.digest()


def digest_body(request: Request, spools: contextlib.ExitStack) -> bytes:
    """Return the SHA-256 of a file body, which can be read again until `spools` is closed."""
    refuse_large_body(request)
    stream = request._request._stream
    # Our ASGI server spools bodies to disk, so they are seekable. Under WSGI they are not.
    spool: IO[bytes] | None = None
    if not (hasattr(stream, "seekable") and stream.seekable()):
        # `spools` closes it.
        spool = spools.enter_context(tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR))  # noqa: SIM115
    digest, size = hashlib.sha256(), 0
    while block := stream.read(READ_BYTES):
        size += len(block)
        if size > settings.MAX_BODY_BYTES:
            detail = f"The body can have at most {settings.MAX_BODY_BYTES:,} bytes (GYMWEB_MAX_BODY_BYTES)."
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", detail, limit=settings.MAX_BODY_BYTES)
        digest.update(block)
        if spool is not None:
            spool.write(block)
    replayable: Any = stream if spool is None else spool
    replayable.seek(0)
    request._request._stream = replayable
    return digest.digest()


def open_part(request: Request) -> HttpRequest:
    """Return the request, whose body is one part of an upload, after checking its type and size."""
    if _media_type(request) not in RAW_TYPES:
        raise UnsupportedMediaType(request.content_type)
    _refuse_large(request, settings.UPLOAD_PART_BYTES, "maximum size of a part")
    return request._request


def is_form(request: Request) -> bool:
    return _media_type(request) == MultiPartParser.media_type


def refuse_large_body(request: Request) -> None:
    _refuse_large(request, settings.MAX_BODY_BYTES, "GYMWEB_MAX_BODY_BYTES")


def _media_type(request: Request) -> str:
    return request.content_type.split(";")[0].strip().lower()


def _refuse_large(request: Request, limit: int, name: str) -> None:
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdigit() and int(length) > limit:
        detail = f"The body has {int(length):,} bytes; the maximum is {limit:,} ({name})."
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", detail, limit=limit)
