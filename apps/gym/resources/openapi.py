"""Read tool schemas out of a resource server's OpenAPI document."""

from typing import Any

from apps.gym.traces.items import Tool

PROTOCOL_ROUTES = frozenset(
    {"seed_session", "verify", "aggregate_metrics", "reverify_mode", "mcp", "openapi.json", "docs", "redoc"}
)
"""Paths of the resource-server protocol itself. A policy model that named one as a tool could score itself."""

GYMNASIUM_ROUTES = frozenset({"reset", "step", "close"})
"""Paths of the Gymnasium protocol; elsewhere they are ordinary names, so a task row may declare tools like these."""

_REFERENCE = "#/components/schemas/"
_MAX_DEPTH = 12


def read_tools(document: object) -> list[Tool]:
    """One tool for each `POST /name` that is no route of the protocol; catch-all routes name no tool."""
    paths = _object(_object(document).get("paths"))
    schemas = _object(_object(_object(document).get("components")).get("schemas"))
    tools = []
    for path, operations in paths.items():
        name = path.removeprefix("/")
        operation = _object(operations).get("post")
        if not isinstance(operation, dict) or not name or "/" in name or "{" in name:
            continue
        if name not in PROTOCOL_ROUTES | GYMNASIUM_ROUTES:
            tools.append(_read_tool(name, operation, schemas))
    return tools


def read_routes(document: object) -> frozenset[str]:
    """The names of all `POST /name`, those of the protocol among them."""
    paths = _object(_object(document).get("paths"))
    return frozenset(path.removeprefix("/") for path, operations in paths.items() if "post" in _object(operations))


def _read_tool(name: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Tool:
    content = _object(_object(operation.get("requestBody")).get("content"))
    schema = _inline(_object(content.get("application/json")).get("schema"), schemas)
    description = operation.get("description") or operation.get("summary")
    return {
        "type": "function",
        "name": name,
        "description": description if isinstance(description, str) else "",
        "parameters": _object(schema) or {"type": "object", "properties": {}},
        # The document of an environment that we serve says so; others have no word for it.
        "strict": operation.get("x-strict") is True,
    }


def _inline(schema: object, schemas: dict[str, Any], depth: int = 0) -> object:
    """The schema with its references replaced by what they name; deeper than any sane one, by `{}` (anything)."""
    if depth > _MAX_DEPTH:
        return {}
    if isinstance(schema, list):
        return [_inline(one, schemas, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _inline(schemas.get(reference.removeprefix(_REFERENCE), {}), schemas, depth + 1)
    return {key: _inline(value, schemas, depth + 1) for key, value in schema.items()}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
