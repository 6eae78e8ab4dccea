"""Errors of the API, in one format: `application/problem+json` (RFC 9457)."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.core.exceptions import (
    NON_FIELD_ERRORS,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.core.exceptions import ValidationError as ModelValidationError
from django.db import DataError
from django.db.models import ProtectedError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from apps.accounts.telemetry.current_request import request_id_of
from apps.gym.redaction.shortening import pointer_step
from apps.gym.request_refusals import INVALID, Refusal
from apps.policies.installation_redactor import current_redactor

PROBLEM_TYPE = "application/problem+json"
WHOLE_BODY = {"non_field_errors", NON_FIELD_ERRORS}


class Problem(exceptions.APIException):
    """An error response.

    `kind` is the last part of the `type` URN. It is stable, so clients can test for it. `members` are added to the JSON
    object.
    """

    def __init__(self, status: int, kind: str, detail: str, **members: Any) -> None:
        super().__init__(detail, code=kind)
        self.status_code = status
        self.kind = kind
        self.members = members


class QueryProblem(Problem):
    """Raised for an unknown query parameter or an invalid value."""

    def __init__(self, errors: Sequence[Mapping[str, str]]) -> None:
        message = "; ".join(error["message"] for error in errors)
        super().__init__(HTTPStatus.BAD_REQUEST, "bad-query", message, errors=list(errors))


def bad_query(name: str, message: str) -> QueryProblem:
    """Return the problem of an invalid value of one query parameter."""
    return QueryProblem([{"pointer": f"?{name}", "code": "invalid", "message": message}])


def problem_body(status: int, kind: str, detail: str, instance: str, **members: Any) -> dict[str, Any]:
    return {
        "type": f"urn:gymweb:problem:{kind}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "instance": instance,
        **members,
    }


def problem_response(request: HttpRequest, status: int, kind: str, detail: str) -> JsonResponse:
    """Return a problem document from code outside API views, for example middleware."""
    body = problem_body(status, kind, detail, request.path, **_id_member(request))
    return JsonResponse(body, status=status, content_type=PROBLEM_TYPE)


def _id_member(request: Any) -> dict[str, str]:
    """Return the member `request_id` of a problem, or nothing if the request has no id."""
    request_id = request_id_of(request)
    return {"request_id": request_id} if request_id else {}


def answer_problem(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return an exception as a problem document, as DRF's EXCEPTION_HANDLER. DRF re-raises it if this returns None."""
    problem = _as_problem(error)
    if problem is None:
        return None
    # Roll back the request's transaction, as DRF does for its own exceptions.
    set_rollback()
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(int(error.wait) + 1)  # type: ignore[attr-defined]
    request = context.get("request")
    # Messages may quote credentials from the request. `current_redactor` makes no query: the database may be down.
    redacted, _ = current_redactor().redact_value({"detail": str(problem.detail), **copy.deepcopy(problem.members)})
    path = request.path if request else ""
    body = problem_body(problem.status_code, problem.kind, instance=path, **redacted, **_id_member(request))
    return Response(body, status=problem.status_code, headers=headers, content_type=PROBLEM_TYPE)


def _as_problem(error: Exception) -> Problem | None:
    for kind_of_error, describe in PROBLEM_OF_EXCEPTION.items():
        if isinstance(error, kind_of_error):
            return describe(error)
    return None


def _describe_drf(error: exceptions.APIException) -> Problem:
    code = error.get_codes()
    kind = code.replace("_", "-") if isinstance(code, str) else "error"
    return Problem(error.status_code, kind, str(error.detail))


def _invalid(errors: list[dict[str, str]]) -> Problem:
    detail = "1 value is not valid." if len(errors) == 1 else f"{len(errors)} values are not valid."
    return Problem(HTTPStatus.BAD_REQUEST, "invalid", detail, errors=errors)


def _describe_refusal(error: Refusal) -> Problem:
    if error.code == INVALID:
        return _invalid(error.invalid_values)
    return Problem(error.status, error.code, str(error), **error.members)


def flatten_errors(details: Any, pointer: str = "") -> Iterator[dict[str, str]]:
    """Flatten nested serializer errors, each with a JSON Pointer (RFC 6901) into the body."""
    if isinstance(details, Mapping) and set(details) == {"message", "code"} and isinstance(details["code"], str):
        yield {"pointer": pointer, "code": details["code"], "message": str(details["message"])}
    elif isinstance(details, Mapping):
        for key, value in details.items():
            escaped = pointer_step(key, 200)
            yield from flatten_errors(value, pointer if key in WHOLE_BODY else f"{pointer}/{escaped}")
    elif isinstance(details, list):
        for index, value in enumerate(details):
            is_leaf = isinstance(value, Mapping) and set(value) == {"message", "code"}
            yield from flatten_errors(value, pointer if is_leaf else f"{pointer}/{index}")


def _flatten_model_errors(error: ModelValidationError) -> Iterator[dict[str, str]]:
    by_field = error.error_dict if hasattr(error, "error_dict") else {NON_FIELD_ERRORS: error.error_list}
    for field, errors in by_field.items():
        for one in errors:
            for message in one.messages:
                # Errors in JSON fields give the position within the field.
                position = (one.params or {}).get("pointer", "")
                pointer = "" if field in WHOLE_BODY else f"/{field}{position}"
                yield {"pointer": pointer, "code": one.code or "invalid", "message": message}


# The first matching class is used. Other exceptions are bugs and get status 500.
PROBLEM_OF_EXCEPTION: dict[type[Exception], Callable[[Any], Problem]] = {
    Problem: lambda error: error,
    exceptions.ValidationError: lambda error: _invalid(list(flatten_errors(error.get_full_details()))),
    ModelValidationError: lambda error: _invalid(list(_flatten_model_errors(error))),
    exceptions.APIException: _describe_drf,
    Http404: lambda error: Problem(HTTPStatus.NOT_FOUND, "not-found", "Not found."),
    PermissionDenied: lambda error: Problem(
        HTTPStatus.FORBIDDEN, "permission-denied", "You do not have permission for this. Use another role or key scope."
    ),
    RequestDataTooBig: lambda error: Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", str(error)),
    Refusal: _describe_refusal,
    SuspiciousOperation: lambda error: Problem(HTTPStatus.BAD_REQUEST, "bad-request", "The request cannot be parsed."),
    # For example a NUL character in a JSON value, which PostgreSQL cannot store.
    DataError: lambda error: Problem(HTTPStatus.BAD_REQUEST, "invalid", "The database cannot store these values."),
    ProtectedError: lambda error: Problem(HTTPStatus.CONFLICT, "in-use", "Other objects use this. Delete them first."),
}
