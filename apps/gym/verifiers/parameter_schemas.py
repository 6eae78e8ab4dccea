"""A verifier's parameters as a JSON schema, from the types and notes of its fields."""

import inspect
from typing import Any

import msgspec

from apps.gym.verifiers.protocol import Verifier, read_type

_PREFIX = "#/$defs/"


def schema_of(verifier: type[Verifier]) -> dict[str, Any]:
    """References are written out, and `null` is left out: a parameter that is not given is absent."""
    document = msgspec.json.schema(verifier)
    named = document["$defs"]
    whole = named[document["$ref"].removeprefix(_PREFIX)]
    parameters = {
        name: _plain(schema, named)
        for name, schema in whole["properties"].items()
        if name != verifier.__struct_config__.tag_field
    }
    required = [name for name in whole["required"] if name in parameters]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": verifier.title,
        "description": inspect.getdoc(verifier) or "",
        "type": "object",
        "properties": {"type": {"const": read_type(verifier)}, **parameters},
        "required": ["type", *required],
        "additionalProperties": False,
    }


def _plain(schema: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    if reference := schema.get("$ref"):
        schema = {**named[reference.removeprefix(_PREFIX)], **{k: v for k, v in schema.items() if k != "$ref"}}
    # Whole numbers are numbers.
    needless = {"null", "integer"} if {"type": "number"} in schema.get("anyOf", []) else {"null"}
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") not in needless]
    if len(choices) == 1:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return _plain({**rest, **choices[0]}, named)
    if choices:
        schema = {**schema, "anyOf": choices}
    if schema.get("default", 0) is None:
        schema = {key: value for key, value in schema.items() if key != "default"}
    if "items" in schema and isinstance(schema["items"], dict):
        schema = {**schema, "items": _plain(schema["items"], named)}
    if isinstance(schema.get("properties"), dict):
        schema = {**schema, "properties": {name: _plain(one, named) for name, one in schema["properties"].items()}}
        if "required" in schema or schema.get("title"):
            schema["additionalProperties"] = schema.get("additionalProperties", False)
    return schema
