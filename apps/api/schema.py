"""The OpenAPI schema: what drf-spectacular cannot see from the code is said here."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularAPIView

from apps.accounts.permissions import Permission
from apps.api.problems import PROBLEM_TYPE

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. Some problems have members of their own besides these.",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "example": "urn:gymweb:problem:invalid"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
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
                    "line": {"type": "integer", "description": "Of an uploaded file, from 1."},
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
    },
}


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "apps.api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer gw_…`"}


class SchemaView(SpectacularAPIView):
    """The schema of this server."""

    permissions = {"get": Permission.MEMBER}


def add_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Every operation can answer with a problem; nobody should have to say so on each."""
    result["components"]["schemas"]["Problem"] = PROBLEM_SCHEMA
    answer = {
        "description": "What went wrong.",
        "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"]["default"] = answer
    return result
