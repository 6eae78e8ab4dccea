"""Turn parameters in JSON into a verifier, or list all their problems."""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from apps.gym.redaction.shortening import cut
from apps.gym.verifiers.protocol import Problem, Verifier, read_type
from apps.gym.verifiers.structured.schema_errors import explain_problems

_PREFIX = "#/$defs/"


@cache
def parameters_schema(verifier: type[Verifier]) -> dict[str, Any]:
    """Return the JSON schema of one verifier's parameters, including `type`.

    References are resolved, and `null` is left out: a parameter that is not given is absent.
    """
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
    # Integers are numbers.
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


Kinds = Mapping[str, type[Verifier]]

MAX_PARAMETERS = 200_000
"""Maximum bytes of a verifier's parameters as JSON."""


class VerifierMisconfigured(ValueError):
    """Raised for invalid parameters. `problems` has each place and what would be valid there."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{pointer or 'the verifier'} {problem}" for pointer, problem in problems))
        self.problems = problems


def read_as(given: object, kinds: Kinds) -> Verifier:
    """Return the verifier of `{"type": …, parameter: …}`. Raises VerifierMisconfigured."""
    problems = list(find_problems_as(given, kinds))
    if problems:
        raise VerifierMisconfigured(problems)
    return _convert(given, kinds)


def find_problems_as(given: object, kinds: Kinds) -> Iterator[Problem]:
    """Yield all problems of a verifier's parameters."""
    if not isinstance(given, dict):
        yield "", f'must be an object like {{"type": "exact_match"}}, not {type(given).__name__}'
        return
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        told = "is missing" if kind is None else f"is {cut(str(kind), 80)!r}"
        yield "/type", f"{told}: give one of {', '.join(kinds)}"
        return
    try:
        verifier = _convert(given, kinds)
    except msgspec.ValidationError as refused:
        found = list(explain_problems(given, parameters_schema(kinds[kind])))
        yield from found or [("", str(refused))]
        return
    if len(msgspec.json.encode(given)) > MAX_PARAMETERS:
        yield "", f"has more than {MAX_PARAMETERS:,} bytes of parameters"
        return
    yield from verifier.find_problems()


def _convert(given: Any, kinds: Kinds) -> Verifier:
    return msgspec.convert({key: value for key, value in given.items() if key != "type"}, kinds[given["type"]])
