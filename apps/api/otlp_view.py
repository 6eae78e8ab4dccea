"""OTLP/HTTP: traces of agents that run elsewhere become rollouts.

Answers have the media type of the request. Errors are problem documents, as in the API.
"""

import zlib
from http import HTTPStatus
from typing import Any, cast

import orjson
from django.http import HttpResponse
from rest_framework.generics import get_object_or_404
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.accounts.permissions import Permission
from apps.agents.models import Agent
from apps.api.fleet.scraping import AnyFormat
from apps.api.framework.problems import Problem
from apps.api.framework.request_bodies import UntouchedParser
from apps.gym.rollout_files.otlp_protobuf import NotOtlp, is_installed, read_request, write_response
from apps.gym.strict_json import JsonRefused, load_strict
from apps.gym.tasks.file_rows import RowRefused
from apps.rollouts.imports.received_traces import Rejected, receive_spans
from apps.tasks.models import Dataset

MAX_BODY = 32 * 1024**2
"""Maximum bytes of a request, as sent and decompressed."""
JSON, PROTOBUF = "application/json", "application/x-protobuf"


class OtlpView(APIView):
    permissions = {"post": Permission.COLLECT}
    content_negotiation_class = AnyFormat
    parser_classes: list[type[BaseParser]] = [UntouchedParser]
    schema = None

    def post(self, request: Request) -> HttpResponse:
        """Keep the spans of the request. Refused ones are named in the partial success of the answer."""
        media_type = request.content_type.split(";")[0].strip().lower()
        if media_type not in (JSON, PROTOBUF):
            raise Problem(415, "unsupported-media-type", f"The body must be {PROTOBUF} or {JSON}.")
        if media_type == PROTOBUF and not is_installed():
            detail = f"{PROTOBUF} needs the packages of requirements-otel.txt. Ask the operator, or send {JSON}."
            raise Problem(415, "unsupported-media-type", detail)
        if not (slug := request.headers.get("x-gymweb-dataset", "")):
            raise Problem(400, "bad-request", "Name the dataset of the traces in the header x-gymweb-dataset.")
        dataset = get_object_or_404(Dataset, slug=slug)
        if not Agent.objects.filter(slug="default").exists():
            raise Problem(HTTPStatus.CONFLICT, "no-default-agent", "No agent named default exists. Create one.")
        name = request.headers.get("x-gymweb-collection", "")
        body = _decompressed(request.headers.get("Content-Encoding", ""), _read(request))
        try:
            row = read_request(body) if media_type == PROTOBUF else _read_json(body)
            rejected = receive_spans(row, dataset=dataset, name=name, user=cast(User, request.user))
        except (RowRefused, NotOtlp) as refusal:
            raise Problem(400, "bad-request", f"The body is not an OTLP request: {refusal}") from None
        return HttpResponse(_answer(rejected, media_type), content_type=media_type)


def _answer(rejected: Rejected, media_type: str) -> bytes:
    if media_type == PROTOBUF:
        return write_response(*rejected)
    partial = {"rejectedSpans": str(rejected.spans), "errorMessage": rejected.message}
    return orjson.dumps({"partialSuccess": partial} if rejected.spans else {})


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        row = load_strict(body.decode())
    except (UnicodeDecodeError, JsonRefused) as error:
        raise NotOtlp(str(error)) from None
    if not isinstance(row, dict):
        raise NotOtlp("it must be a JSON object")
    return row


def _read(request: Request) -> bytes:
    body = request._request.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise _too_large()
    return body


def _decompressed(encoding: str, body: bytes) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise Problem(415, "unsupported-media-type", "The body must be compressed with gzip or deflate, or not at all.")
    reader = zlib.decompressobj(31 if encoding == "gzip" else 15)
    try:
        whole = reader.decompress(body, MAX_BODY + 1)
    except zlib.error as error:
        raise Problem(400, "bad-request", f"The body is not valid {encoding}: {error}") from None
    if len(whole) > MAX_BODY:
        raise _too_large()
    if not reader.eof:
        raise Problem(400, "bad-request", f"The {encoding} data ends too early.")
    return whole


def _too_large() -> Problem:
    detail = f"The request is larger than {MAX_BODY:,} bytes. Let the sender export smaller batches."
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", detail)
