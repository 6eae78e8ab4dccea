"""Structured output: the reply, or the arguments of a call, is JSON that fits a schema."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import orjson
from msgspec import Meta

from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text, function_calls
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.answering import refuse
from apps.gym.verifiers.protocol import Problem, TimeLimit, Verifier
from apps.gym.verifiers.structured.endless_schemas import find_endless
from apps.gym.verifiers.structured.json_finder import find_json
from apps.gym.verifiers.structured.schema_errors import join_pointer
from apps.gym.verifiers.tools.expected_calls import json_key

_ABSENT = object()
_MOST = 10


class StructuredOutput(Verifier, frozen=True, kw_only=True, tag="json_schema"):
    """1.0 when the JSON that was given fits the schema, else 0.0.

    The JSON is the whole reply, its last fenced block (those that say `json` come before others), or the last object or
    list in it; with `strict` only the whole reply. From a tool call: there must be exactly one call, of the named tool
    if one is named, and its arguments (or the one argument that is named) are looked at. `closed` makes every property
    of the schema required and allows no others, as NeMo Gym's structured_outputs does. A schema's patterns may take for
    ever, so this runs in a process that is stopped at the time limit.

    Range: 0.0 or 1.0. Components: `json` (1.0 when there is JSON at all) and `schema`.
    """

    title: ClassVar[str] = "JSON by a schema"
    schema: Annotated[
        dict[str, Any], Meta(title="JSON schema", description="Left out: the row's field, as an object or as its JSON")
    ] = {}
    schema_field: Annotated[str, Meta(title="Field of the schema", min_length=1)] = "schema_str"
    source: (
        Annotated[
            Literal["text", "tool_call"],
            Meta(title="Where the JSON stands", description="Left out: the row's `response_mode`, else the text"),
        ]
        | None
    ) = None
    tool: Annotated[
        str, Meta(title="Tool", max_length=256, description="Left out: the row's `tool_name`, else any tool")
    ] = ""
    argument: Annotated[
        str,
        Meta(title="Argument", max_length=256, description="Left out: the row's `tool_payload_key`, else all of them"),
    ] = ""
    strict: Annotated[bool, Meta(title="Nothing but JSON")] = False
    closed: Annotated[bool, Meta(title="Every property, and no other")] = False
    time_limit: TimeLimit = 5.0

    def stays_on_loop(self, row: TaskRow) -> bool:
        return False

    @property
    def seconds(self) -> float:
        return self.time_limit

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.schema else frozenset({self.schema_field})

    def find_problems(self) -> Iterator[Problem]:
        if self.schema:
            yield from (("/schema" + pointer, problem) for pointer, problem in _schema_problems(self.schema))

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend
        from referencing import Registry

        schema = self._schema(row)
        given, problem = self._find(row, response)
        if given is _ABSENT:
            return Reward(value=0.0, components={"json": 0.0, "schema": 0.0}, explanation=problem)
        # An empty registry: the library would else fetch what a schema refers to.
        closed = close_schema(schema) if self.closed else schema
        # The library compares every item with every other.
        quick = extend(Draft202012Validator, {"uniqueItems": _unique})
        validator = quick(closed, registry=Registry())
        problems = []
        for error in validator.iter_errors(given):
            problems.append(f"{join_pointer(error.absolute_path) or '/'}: {excerpt(error.message)}")
            if len(problems) == _MOST:
                break
        value = float(not problems)
        return Reward(
            value=value,
            components={"json": 1.0, "schema": value},
            explanation="\n".join(problems) or "fits the schema",
            details={"problems": problems},
        )

    def _schema(self, row: TaskRow) -> dict[str, Any]:
        given = self.schema or row.get(self.schema_field)
        if isinstance(given, str):
            try:
                given = orjson.loads(given)
            except orjson.JSONDecodeError as error:
                raise refuse(f"the task row's `{self.schema_field}` is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise refuse(f"the task row's `{self.schema_field}` must be a JSON schema")
        problem = next(_schema_problems(given), None)
        if problem:
            raise refuse(f"the task row's `{self.schema_field}` is no JSON schema: {problem[0]} {problem[1]}")
        return given

    def _find(self, row: TaskRow, response: dict[str, Any]) -> tuple[Any, str]:
        """What was given, or _ABSENT with the reason."""
        output = response.get("output") or []
        source = self.source or row.get("response_mode") or "text"
        if source == "text":
            text = assistant_text(output)
            if not self.strict:
                return find_json(text, _ABSENT), "there is no JSON in the reply"
            try:
                return orjson.loads(text), ""
            except orjson.JSONDecodeError as error:
                return _ABSENT, f"the reply is not JSON: {error}"
        if source != "tool_call":
            raise refuse(f"the task row's `response_mode` is {source!r}, not text or tool_call")
        return self._find_argument(row, function_calls(output))

    def _find_argument(self, row: TaskRow, calls: list[dict[str, Any]]) -> tuple[Any, str]:
        if len(calls) != 1:
            return _ABSENT, f"there are {len(calls)} tool calls in place of one"
        tool, argument = self.tool or row.get("tool_name"), self.argument or row.get("tool_payload_key")
        if tool and calls[0].get("name") != tool:
            return _ABSENT, f"{calls[0].get('name')} was called in place of {tool}"
        try:
            arguments = orjson.loads(str(calls[0].get("arguments") or "{}"))
        except orjson.JSONDecodeError as error:
            return _ABSENT, f"the call's arguments are not JSON: {error}"
        if not argument:
            return arguments, ""
        if not isinstance(arguments, dict) or argument not in arguments:
            return _ABSENT, f"the call has no argument {argument}"
        return arguments[argument], ""


def _unique(_: Any, wanted: Any, given: Any, __: Any) -> Iterator[Exception]:
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(given, list) and len(set(map(json_key, given))) < len(given):
        yield ValidationError("the list holds an item twice")


def close_schema(schema: Any) -> Any:
    """The schema with every property required and no others allowed, at every depth."""
    if isinstance(schema, list):
        return [close_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: close_schema(value) for key, value in schema.items() if key not in ("enum", "const", "default")}
    closed |= {key: schema[key] for key in ("enum", "const", "default") if key in schema}
    if isinstance(schema.get("properties"), dict):
        closed |= {"required": list(schema["properties"]), "additionalProperties": False}
    return closed


def _schema_problems(schema: dict[str, Any]) -> Iterator[Problem]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        yield join_pointer(error.absolute_path), f"is no part of a JSON schema: {error.message}"
    except RecursionError:
        yield "", "is nested too deeply for a JSON schema"
    for reference in _references(schema):
        if not reference.startswith("#"):
            yield "", f"refers to {cut(reference, 80)!r}: only references within the schema, #/…, are followed"
    if endless := find_endless(schema):
        yield "", f"refers to itself without an end, by {cut(endless, 80)!r}: no value could be held to it"


def _references(schema: Any) -> Iterator[str]:
    """Every `$ref`. A walk without recursion: schemas come from task rows."""
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from (one[key] for key in ("$ref", "$dynamicRef") if isinstance(one.get(key), str))
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
