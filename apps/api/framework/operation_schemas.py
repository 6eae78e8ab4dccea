"""Complete drf-spectacular's operations with their problem responses and the required permission."""

from http import HTTPStatus
from typing import Any

from apps.api.framework.request_factory import import_request_factory_lazily

with import_request_factory_lazily():
    from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc
from drf_spectacular.utils import Direction
from rest_framework import serializers

from apps.accounts.permissions import SESSION_ONLY, Permission, scopes_with
from apps.api.framework.base_viewsets import SLUG
from apps.api.framework.body_examples import FILES
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.idempotency import HEADER, KEY_SCHEMA
from apps.api.framework.problems import PROBLEM_TYPE

# Every operation may return these. They are one `default` response in the schema.
ALWAYS = (400, 401, 403, 406, 429, 503, 507)
MEANINGS: dict[int, tuple[str, str, str]] = {
    400: ("BadRequest", "invalid", "A parameter or field is unknown, missing or invalid; see `errors`."),
    401: ("NotAuthenticated", "not-authenticated", "The API key is missing, unknown, revoked or expired."),
    403: ("PermissionDenied", "permission-denied", "The API key or the role of its owner does not allow this."),
    404: ("NotFound", "not-found", "Not found."),
    406: ("NotAcceptable", "not-acceptable", "No media type in `Accept` is available."),
    409: ("Conflict", "in-use", "The current state does not allow this; see `type`."),
    410: ("Gone", "file-gone", "The file is no longer on the server."),
    412: ("PreconditionFailed", "precondition-failed", "The file changed: its `ETag` differs from `If-Match`."),
    413: ("TooLarge", "too-large", "A limit is exceeded; see `detail`."),
    415: ("UnsupportedMediaType", "unsupported-media-type", "The media type of the body is not supported."),
    416: ("RangeNotSatisfiable", "range", "The range is outside the file; `Content-Range` has its size."),
    422: ("KeyReused", "idempotency-key-reused", "The Idempotency-Key was used for another request."),
    429: ("TooManyRequests", "throttled", "Too many requests. Retry after `Retry-After` seconds."),
    503: ("Unavailable", "database-away", "The database is unavailable. Retry after `Retry-After` seconds."),
    507: ("DiskFull", "disk-full", "A disk of the server is full; see `detail`."),
}

FIELDS_PARAMETER: dict[str, Any] = {
    "name": "fields",
    "in": "query",
    "required": False,
    "description": "Return only these fields, separated by commas. This can leave out required fields of the schema.",
    "schema": {"type": "string", "minLength": 1, "example": "id"},
}
KEY_PARAMETER: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key has no further effect and returns the first response.",
    "schema": KEY_SCHEMA,
}
NOT_MODIFIED: dict[str, Any] = {"description": "Not modified: the `ETag` equals `If-None-Match`."}


def problem_responses() -> dict[str, Any]:
    """Return the response components that operations refer to, by name."""
    responses, examples = {"NotModified": NOT_MODIFIED}, {}
    for status, (name, _, description) in MEANINGS.items():
        if status in ALWAYS:
            examples[name] = {"summary": description, "value": _example_of(status)}
        else:
            responses[name] = _problem_response(description, example=_example_of(status))
    statuses = ", ".join(map(str, ALWAYS))
    responses["Problem"] = _problem_response(f"Every operation may also return {statuses}.", examples=examples)
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
        "request_id": "5f0c1e9a7b3d4c2f8e6a1b0d9c7f3e21",
    }
    if status == HTTPStatus.BAD_REQUEST:
        message = "“colection” is not a query parameter of this endpoint. Did you mean “collection”?"
        example["errors"] = [{"pointer": "?colection", "code": "unknown", "message": message}]
    return example


class DescribedSchema(AutoSchema):
    """Schema of an operation. A view declares additional statuses by action: `problems = {"download": {410}}`.

    Operations other than GET may always return 409.
    """

    def get_operation(self, *arguments: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*arguments)
        if operation is None:
            return None
        if operation["operationId"] in FILES:
            operation["requestBody"]["content"]["application/x-ndjson"]["example"] = FILES[operation["operationId"]]
        self._add_parameters(operation)
        statuses = set(getattr(self.view, "problems", {}).get(self._action_name(), ()))
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
        permission = getattr(self.view, "permissions", {}).get(self._action_name())
        if isinstance(permission, Permission):
            operation["x-permission"] = str(permission)
            operation["x-scopes"] = scopes_with(permission)
            if permission in SESSION_ONLY:
                operation["security"] = [one for one in operation["security"] if "apiKey" not in one]
        return operation

    def get_description(self) -> str:  # type: ignore[override]
        """Return the docstring of the action, or of `perform_<action>` if a mixin provides the action."""
        perform = getattr(self.view, f"perform_{self._action_name()}", None)
        return get_doc(perform) or str(super().get_description())

    def _add_parameters(self, operation: dict[str, Any]) -> None:
        has_fields = getattr(self.view, "has_fields", None)
        parameters = operation.setdefault("parameters", [])
        if has_fields is not None and self.method == "GET" and has_fields(self._action_name()):
            parameters.append(FIELDS_PARAMETER)
        if self._is_repeatable():
            parameters.append(KEY_PARAMETER)
        if not parameters:
            del operation["parameters"]

    def _is_repeatable(self) -> bool:
        """Return True if responses of this operation are stored for its Idempotency-Key."""
        others = getattr(self.view, "own_idempotency", frozenset()) | getattr(
            self.view, "without_idempotency", frozenset()
        )
        return self.method == "POST" and self._action_name() not in others

    def _get_filter_parameters(self) -> list[dict[str, Any]]:
        """Return the filter parameters, with minimum and maximum."""
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

    def _action_name(self) -> str:
        return getattr(self.view, "action", None) or self.method.lower()
