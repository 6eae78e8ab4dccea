"""The `Idempotency-Key` header: a retried POST has no second effect and gets the stored response."""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.idempotent_requests import (
    MAX_KEY_LENGTH,
    claim_key,
    find_key_problem,
    release_key,
    store_response,
)
from apps.accounts.models import User
from apps.api.framework.problems import Problem
from apps.api.framework.request_bodies import digest_body, digest_form, is_form

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEY_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH, "pattern": "^[!-~]+$"}
PLAN_KEY = OpenApiParameter(
    HEADER,
    KEY_SCHEMA,
    OpenApiParameter.HEADER,
    description="A second request with the same key returns the same collection. A stream sends all of its rollouts "
    "again.",
)
Handler = Callable[..., HttpResponseBase]


Replay = Callable[[Request, Any], HttpResponseBase]
"""Answer a repeated request, given `kept` of the first response."""


def once(handler: Handler, *, repeatable: bool, replay: Replay | None = None) -> Handler:
    """Run the handler once per key. Rejections are not stored, so a corrected request may use the key again.

    Responses with secrets are not stored: with `replay`, only their attribute `kept` is. A response without it does
    not use up the key.
    """

    def answer(request: Request, *arguments: Any, **names: Any) -> HttpResponseBase:
        with ExitStack() as spools:
            return answer_once(spools, request, *arguments, **names)

    def answer_once(spools: ExitStack, request: Request, *arguments: Any, **names: Any) -> HttpResponseBase:
        key = read_key(request)
        if not key:
            return handler(request, *arguments, **names)
        if not repeatable:
            raise _refuse(f"Responses of this endpoint are not stored, so it does not accept {HEADER}.")
        user = request.user
        assert isinstance(user, User)
        claim = claim_key(user=user, key=key, fingerprint=_fingerprint(request, spools))
        if claim.status is not None and replay is not None:
            return replay(request, orjson.loads(claim.body))
        if claim.status is not None:
            headers = {REPLAYED: "true", **({"Location": claim.location} if claim.location else {})}
            return HttpResponse(claim.body, status=claim.status, headers=headers, content_type="application/json")
        try:
            response = handler(request, *arguments, **names)
        except BaseException:
            release_key(claim=claim)
            raise
        stored = getattr(response, "kept" if replay else "data", None)
        if (
            not isinstance(response, Response)
            or response.status_code >= HTTPStatus.BAD_REQUEST
            or (replay and stored is None)
        ):
            release_key(claim=claim)
            return response
        body = JSONRenderer().render(stored).decode()
        store_response(
            claim=claim, status=response.status_code, body=body, location=response.headers.get("Location", "")
        )
        return response

    return answer


def read_key(request: Request) -> str:
    """Return the key, or an empty string without the header. Raise Problem for an invalid key."""
    key: str | None = request.headers.get(HEADER)
    if key is not None and (problem := find_key_problem(key)):
        raise _refuse(f"This header {problem}")
    return key or ""


def _refuse(message: str) -> Problem:
    # Not a JSON Pointer, which would refer to the body.
    errors = [{"pointer": f"{HEADER}:", "code": "invalid", "message": message}]
    return Problem(HTTPStatus.BAD_REQUEST, "invalid", message, errors=errors)


def _fingerprint(request: Request, spools: ExitStack) -> str:
    """Return a SHA-256 of method, URL, media type and body. The boundary of a form does not affect it."""
    digest = hashlib.sha256()
    match = request.resolver_match
    takes_files = match is not None and match.view_name in settings.LARGE_BODY_ROUTES
    is_file_form = takes_files and is_form(request)
    media_type = request.content_type.partition(";")[0] if is_file_form else request.content_type
    for part in (request.method, request.get_full_path(), media_type):
        digest.update(f"{part}\n".encode())
    if is_file_form:
        digest.update(digest_form(request))
    elif takes_files:
        digest.update(digest_body(request, spools))
    else:
        digest.update(request._request.body)
    return digest.hexdigest()
