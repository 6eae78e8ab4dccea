"""What drf-spectacular says of each operation, completed: every problem that it can answer with, by status, and the
permission that it needs."""

from http import HTTPStatus
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import Direction
from rest_framework import serializers

from apps.accounts.permissions import SESSION_ONLY, Permission, scopes_with
from apps.api.framework.base_viewsets import SLUG
from apps.api.framework.body_examples import FILES
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.idempotency import HEADER, KEY_SCHEMA
from apps.api.framework.problems import PROBLEM_TYPE

# Every operation may answer these, so each refers to them by one `default`: an unknown parameter, no key, a key without
# the permission, an unsupported `Accept`, too many requests, an unreachable database, a full disk.
ALWAYS = (400, 401, 403, 406, 429, 503, 507)
MEANINGS: dict[int, tuple[str, str, str]] = {
    400: ("BadRequest", "invalid", "A parameter or a field is unknown, missing or wrong; `errors` says which."),
    401: ("NotAuthenticated", "not-authenticated", "No key, or one that is unknown, revoked or expired."),
    403: ("PermissionDenied", "permission-denied", "The key, or the role of its owner, does not allow this."),
    404: ("NotFound", "not-found", "There is nothing at this address."),
    406: ("NotAcceptable", "not-acceptable", "`Accept` names nothing that this address answers with."),
    409: ("Conflict", "in-use", "The state of what is there does not allow this; `type` says why."),
    410: ("Gone", "file-gone", "The file is no longer on the server."),
    412: ("PreconditionFailed", "precondition-failed", "This is no longer what `If-Match` names."),
    413: ("TooLarge", "too-large", "More than a limit allows; `detail` names the limit."),
    415: ("UnsupportedMediaType", "unsupported-media-type", "The body is of a type that this address does not take."),
    416: ("RangeNotSatisfiable", "range", "The file has no such bytes; `Content-Range` tells its size."),
    422: ("KeyReused", "idempotency-key-reused", "The Idempotency-Key belongs to another request."),
    429: ("TooManyRequests", "throttled", "Wait for as many seconds as `Retry-After` says."),
    503: ("Unavailable", "database-away", "Wait for as many seconds as `Retry-After` says, and ask again."),
    507: ("DiskFull", "disk-full", "A disk of the server is full; `detail` says which, and what to do."),
}

FIELDS_PARAMETER: dict[str, Any] = {
    "name": "fields",
    "in": "query",
    "required": False,
    "description": "Only these members, separated by commas; the schema's required ones are left out too.",
    "schema": {"type": "string", "minLength": 1, "example": "id"},
}
KEY_PARAMETER: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "With the same key, the same request has its effect once, and the same answer again.",
    "schema": KEY_SCHEMA,
}
NOT_MODIFIED: dict[str, Any] = {"description": "Still what `If-None-Match` names: the `ETag` of an earlier answer."}


def whole(low: int, high: int) -> dict[str, Any]:
    """The schema of a whole number in a query."""
    return {"type": "integer", "minimum": low, "maximum": high}


def problem_responses() -> dict[str, Any]:
    """The components that operations refer to."""
    responses, examples = {"NotModified": NOT_MODIFIED}, {}
    for status, (name, _, description) in MEANINGS.items():
        if status in ALWAYS:
            examples[name] = {"summary": description, "value": _example_of(status)}
        else:
            responses[name] = _problem_response(description, example=_example_of(status))
    statuses = ", ".join(map(str, ALWAYS))
    responses["Problem"] = _problem_response(f"Any operation may answer {statuses}.", examples=examples)
    seconds = {"schema": {"type": "integer", "minimum": 0}, "description": "Seconds, with a 429, 503 or 507."}
    responses["Problem"]["headers"] = {"Retry-After": seconds}
    return responses


def _problem_response(description: str, **example: Any) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {PROBLEM_TYPE: {"schema": schema, **example}}}


def _example_of(status: int) -> dict[str, Any]:
    _, kind, description = MEANINGS[status]
    example = {
        "type": f"urn:gymweb:problem:{kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": description,
        "instance": "/api/v1/rollouts/",
    }
    if status == HTTPStatus.BAD_REQUEST:
        message = "“colection” is not a query parameter of this address. Did you mean “collection”?"
        example["errors"] = [{"pointer": "?colection", "code": "unknown", "message": message}]
    return example


class DescribedSchema(AutoSchema):
    """A view may name further statuses of an action: `problems = {"download": {410}}`."""

    def get_operation(self, *arguments: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*arguments)
        if operation is None:
            return None
        if operation["operationId"] in FILES:
            operation["requestBody"]["content"]["application/x-ndjson"]["example"] = FILES[operation["operationId"]]
        self._add_parameters(operation)
        statuses = set(getattr(self.view, "problems", {}).get(self._asked(), ()))
        if "{" in self.path:
            statuses.add(404)
        if self.method != "GET":
            statuses.add(409)
        elif "200" in operation["responses"]:
            operation["responses"]["304"] = {"$ref": "#/components/responses/NotModified"}
            statuses.add(412)
        if self._is_repeatable():
            statuses.add(422)
        if "requestBody" in operation:
            statuses |= {413, 415}
        for status in statuses.difference(ALWAYS):
            operation["responses"][str(status)] = {"$ref": f"#/components/responses/{MEANINGS[status][0]}"}
        operation["responses"] = dict(sorted(operation["responses"].items()))
        operation["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
        permission = getattr(self.view, "permissions", {}).get(self._asked())
        if isinstance(permission, Permission):
            operation["x-permission"] = str(permission)
            operation["x-scopes"] = scopes_with(permission)
            if permission in SESSION_ONLY:
                operation["security"] = [one for one in operation["security"] if "apiKey" not in one]
        return operation

    def _add_parameters(self, operation: dict[str, Any]) -> None:
        has_fields = getattr(self.view, "has_fields", None)
        parameters = operation.setdefault("parameters", [])
        if has_fields is not None and self.method == "GET" and has_fields(self._asked()):
            parameters.append(FIELDS_PARAMETER)
        if self._is_repeatable():
            parameters.append(KEY_PARAMETER)
        if not parameters:
            del operation["parameters"]

    def _is_repeatable(self) -> bool:
        """Whether answers to this operation are kept for its Idempotency-Key."""
        others = getattr(self.view, "own_repeats", frozenset()) | getattr(self.view, "unrepeatable", frozenset())
        return self.method == "POST" and self._asked() not in others

    def _get_filter_parameters(self) -> list[dict[str, Any]]:
        """With the bounds that the filters keep."""
        parameters: list[dict[str, Any]] = super()._get_filter_parameters()  # type: ignore[no-untyped-call]
        filters = getattr(getattr(self.view, "filterset_class", None), "base_filters", {})
        for parameter in parameters:
            extra = filters[parameter["name"]].extra if parameter["name"] in filters else {}
            bounds = {"minimum": extra.get("min_value"), "maximum": extra.get("max_value")}
            parameter["schema"] |= {name: bound for name, bound in bounds.items() if bound is not None}
            if extra.get("decimal_places") == 0:
                parameter["schema"]["type"] = "integer"
        return parameters

    def _map_serializer_field(self, field: Any, direction: Direction, bypass_extensions: bool = False) -> Any:
        described = super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        if isinstance(field, serializers.SlugRelatedField) and field.slug_field == "slug":
            described["pattern"] = f"^{SLUG}$"
        return described

    def _postprocess_serializer_schema(self, schema: dict[str, Any], serializer: Any, direction: Direction) -> Any:
        described = super()._postprocess_serializer_schema(schema, serializer, direction)  # type: ignore[no-untyped-call]
        if direction == "request" and isinstance(serializer, DeclaredFields):
            described["additionalProperties"] = False
        return described

    def _asked(self) -> str:
        return getattr(self.view, "action", None) or self.method.lower()
