"""The OpenAPI schema, with additions that drf-spectacular cannot derive from the code."""

from typing import Any

from django.views.generic import TemplateView
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularAPIView

from apps.accounts.permissions import Permission, allow
from apps.api.framework.body_examples import REQUESTS
from apps.api.framework.operation_schemas import problem_responses

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. Some problem types have more members.",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "example": "urn:gymweb:problem:invalid"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "request_id": {
            "type": "string",
            "description": "The `X-Request-ID` header of the response. Log lines of the request have it too.",
        },
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "A JSON Pointer into the body, or `?name` for a query parameter.",
                    },
                    "line": {"type": "integer", "description": "Line of an uploaded file, from 1."},
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
    },
}


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "apps.api.framework.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer gw_…`"}


class SchemaView(SpectacularAPIView):
    """Return the OpenAPI schema of this server."""

    permissions = {"get": Permission.MEMBER}


def add_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add the problem components that operations refer to."""
    result["components"]["schemas"]["Problem"] = PROBLEM_SCHEMA
    for name, example in REQUESTS.items():
        result["components"]["schemas"][name]["example"] = example
    result["components"]["responses"] = problem_responses()
    return result


swagger_page = allow(GET=Permission.MEMBER)(TemplateView.as_view(template_name="api/docs.html"))
"""Swagger UI from the files of drf-spectacular's sidecar, under our content security policy."""
