"""Fail if the operations of the `gymweb` command line differ from docs/openapi.yaml; --write updates them.

The file has only data: each operation that a command sends, with its fields, from which the client makes options.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "clients" / "python")]

from scripts.generated_files import keep_current  # noqa: E402 - found by the line above

SCHEMA_PATH = ROOT / "docs" / "openapi.yaml"
OPERATIONS_PATH = ROOT / "clients" / "python" / "gymweb_client" / "cli" / "operations.json"
PREFIX = "/api/v1/"
LEFT_OUT = {"cursor", "wait"}
"""Parameters that the client sets itself: it follows pages, with any `limit`, and waits for long work."""


def read_operations(schema: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return the operations of these ids, by id. Raise KeyError for an id that the schema lacks."""
    found = {
        operation["operationId"]: _describe(schema, method, path, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        if method in {"get", "post", "put", "patch", "delete"}
    }
    return {name: found[name] for name in sorted(names)}


def _describe(schema: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    pages = any(one["name"] == "cursor" for one in operation.get("parameters", ()))
    left_out = LEFT_OUT | ({"limit"} if pages else set())
    parameters = [one for one in operation.get("parameters", ()) if one["name"] not in left_out]
    fields = [_field(schema, one["name"], one["in"], one["schema"] | _told(one)) for one in parameters]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        shape = _resolve(schema, body["schema"])
        required = shape.get("required", ())
        fields += [
            _field(schema, name, "body", {**one, "required": name in required})
            for name, one in shape.get("properties", {}).items()
            if not one.get("readOnly")
        ]
    # Arguments of a command are in the order of the path; headers come last in its help.
    fields.sort(key=lambda one: (path.find(one["name"]) if one["in"] == "path" else len(path), one["in"] == "header"))
    head = {"method": method.upper(), "path": path.removeprefix(PREFIX), "pages": pages}
    return {**head, "help": _help(operation.get("description", "")), "fields": fields}


LONG_TEXT = 100_000
"""Texts of this many characters can be given as @FILE."""


def _told(parameter: dict[str, Any]) -> dict[str, Any]:
    return {name: parameter[name] for name in ("required", "description") if name in parameter}


def _field(schema: dict[str, Any], name: str, place: str, given: dict[str, Any]) -> dict[str, Any]:
    shape = {**_resolve(schema, given), **{key: value for key, value in given.items() if key != "allOf"}}
    items = _resolve(schema, shape.get("items", {}))
    told = {
        "name": name,
        "in": place,
        "type": shape.get("type", "json"),
        "items": items.get("type", "json") if shape.get("type") == "array" else None,
        "required": shape.get("required") is True,
        "nullable": shape.get("nullable", False),
        "secret": shape.get("writeOnly", False),
        # Long texts, for example templates, are read from files.
        "from_file": shape.get("maxLength", 0) >= LONG_TEXT,
        "choices": [one for one in shape.get("enum") or items.get("enum") or () if one not in {"", None}],
        "min": shape.get("minimum", items.get("minimum")),
        "max": shape.get("maximum", items.get("maximum")),
        "default": shape.get("default"),
        "help": _help(shape.get("description", "")),
    }
    return {key: value for key, value in told.items() if value not in (None, False, "", [])}


def _resolve(schema: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """Return the shape with references resolved. Of alternatives, the first is used: the others are null or blank."""
    if "$ref" in shape:
        return _resolve(schema, schema["components"]["schemas"][shape["$ref"].rpartition("/")[2]])
    for key in ("allOf", "oneOf"):
        if key in shape:
            return {**_resolve(schema, shape[key][0]), **{name: shape[name] for name in shape if name != key}}
    return shape


def _help(description: str) -> str:
    """Return the text without the list of choices, which follows after an empty line."""
    text, _, _ = f"\n\n{description}".partition("\n\n* `")
    return " ".join(text.split())


def render(operations: dict[str, Any]) -> str:
    """Return JSON with one line per field, for readable diffs."""
    blocks = []
    for name, operation in operations.items():
        fields = ",\n".join(f"   {json.dumps(one, ensure_ascii=False)}" for one in operation["fields"])
        head = json.dumps({**operation, "fields": []}, ensure_ascii=False).removesuffix("]}")
        blocks.append(f' "{name}": {head}\n{fields}\n ]}}' if fields else f' "{name}": {head}]}}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def generate() -> str:
    """Return the file of the operations that the commands use."""
    from gymweb_client.cli.declarations import operations_used

    schema = yaml.load(SCHEMA_PATH.read_bytes(), Loader=yaml.CSafeLoader)
    return render(read_operations(schema, operations_used()))


if __name__ == "__main__":
    keep_current(OPERATIONS_PATH, generate, about=__doc__, remedy="make schema")
