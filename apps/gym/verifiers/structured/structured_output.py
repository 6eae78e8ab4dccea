"""Structured output: the reply, or the arguments of a call, is JSON that fits a schema."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import orjson
from msgspec import Meta

from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.storable import walk_json
from apps.gym.traces.items import TaskRow, assistant_text, function_calls
from apps.gym.verifiers.answer_extraction import excerpt
from apps.gym.verifiers.protocol import Problem, TimeLimit, Verifier, permanent_error
from apps.gym.verifiers.structured.json_finder import find_json
from apps.gym.verifiers.structured.schema_errors import join_pointer
from apps.gym.verifiers.tools.expected_calls import json_key

_ONE = ("not", "if", "then", "else")
_SEVERAL = ("allOf", "anyOf", "oneOf")
_VALUES = frozenset({"const", "enum", "default", "examples"})


def find_endless(schema: dict[str, Any]) -> str:
    """Return a reference that leads back to itself, or an empty text.

    Only `#` and `#/…` are followed.

    Depth-first without recursion, because schemas come from task rows.
    """
    done: set[int] = set()
    for start in _subschemas(schema):
        if id(start) in done:
            continue
        on_path = {id(start)}
        path = [(start, _applied(schema, start))]
        while path:
            place, applied = path[-1]
            reference, following = next(applied, ("", None))
            if following is None:
                path.pop()
                on_path.discard(id(place))
                done.add(id(place))
            elif id(following) in on_path:
                return reference
            elif id(following) not in done:
                on_path.add(id(following))
                path.append((following, _applied(schema, following)))
    return ""


def _applied(whole: dict[str, Any], place: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas that apply to the same value, each with the reference that led to it."""
    for reference in (place.get("$ref"), place.get("$recursiveRef")):
        if isinstance(reference, str) and isinstance(found := _resolve(whole, reference), dict):
            yield reference, found
    named = [place.get(key) for key in _ONE]
    # Up to draft-07, `dependencies` holds schemas too.
    for dependent in (place.get("dependentSchemas"), place.get("dependencies")):
        named += dependent.values() if isinstance(dependent, dict) else []
    for key in _SEVERAL:
        several = place.get(key)
        named += several if isinstance(several, list) else []
    yield from (("$ref", one) for one in named if isinstance(one, dict))


def _resolve(whole: Any, reference: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = whole
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 7 and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict):
            found = found.get(name)
        else:
            return None
    return found


def _subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (one for path, one in walk_json(schema) if isinstance(one, dict) and _VALUES.isdisjoint(path))


_DRAFTS = {
    "json-schema.org/draft-04/schema": "Draft4Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}


def find_draft(schema: dict[str, Any]) -> Any:
    """Return the validator class of the draft that `$schema` declares, by default 2020-12, or None if it is unknown."""
    import jsonschema

    declared = str(schema.get("$schema", "https://json-schema.org/draft/2020-12/schema"))
    # Many schemas have the other scheme or no #.
    name = _DRAFTS.get(re.sub(r"\Ahttps?://", "", declared).removesuffix("#"))
    return getattr(jsonschema, name) if name else None


_ABSENT = object()
_MOST = 10


class StructuredOutput(Verifier, frozen=True, kw_only=True, tag="json_schema"):
    """1.0 if the JSON of the reply matches the schema, otherwise 0.0.

    The verifier parses the first of these that is JSON: the whole reply; a fenced block, from the last to the first,
    blocks marked `json` before others; the last object or list. A reply that ends inside an object or list has no JSON,
    and values inside broken JSON do not count. With `strict`, it parses only the whole reply. `$schema` names the
    draft: 04, 06, 07, 2019-09 or 2020-12, the default.

    For a tool call, there must be exactly one call, of the named tool if given; its arguments or the named argument are
    checked. `closed` requires every property of the schema and allows no others, as NeMo Gym's structured_outputs does.
    Verification stops at the time limit with `verifier_timeout`.

    Range: 0.0 or 1.0. Components: `json` (1.0 if the reply contains JSON) and `schema`.
    """

    title: ClassVar[str] = "JSON schema match"
    schema: Annotated[
        dict[str, Any],
        Meta(
            title="JSON schema",
            description="The same schema for all tasks. Default: the row field below, as an object or JSON text",
        ),
    ] = {}
    schema_field: Annotated[str, Meta(title="Field of the schema", min_length=1)] = "schema_str"
    source: (
        Annotated[
            Literal["text", "tool_call"],
            Meta(title="JSON location", description="Default: `response_mode` of the row, otherwise the text"),
        ]
        | None
    ) = None
    tool: Annotated[
        str, Meta(title="Tool", max_length=256, description="Default: `tool_name` of the row, otherwise any tool")
    ] = ""
    argument: Annotated[
        str,
        Meta(
            title="Argument",
            max_length=256,
            description="Default: `tool_payload_key` of the row, otherwise all arguments",
        ),
    ] = ""
    strict: Annotated[bool, Meta(title="The whole reply must be JSON")] = False
    closed: Annotated[bool, Meta(title="Require exactly the properties of the schema")] = False
    time_limit: TimeLimit = 5.0

    def runs_on_loop(self, row: TaskRow) -> bool:
        return False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.schema else frozenset({self.schema_field})

    @classmethod
    def prepare(cls) -> None:
        list(_schema_problems({}))

    def find_problems(self) -> Iterator[Problem]:
        if self.schema:
            yield from (("/schema" + pointer, problem) for pointer, problem in _schema_problems(self.schema))

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        from jsonschema.validators import extend
        from referencing import Registry

        schema = self._schema(row)
        given, problem = self._find(row, response)
        if given is _ABSENT:
            return Reward(value=0.0, components={"json": 0.0, "schema": 0.0}, explanation=problem)
        # An empty registry, because otherwise the library would fetch referenced schemas.
        closed = close_schema(schema) if self.closed else schema
        # The library's own check compares every item with every other.
        quick = extend(find_draft(schema), {"uniqueItems": _unique})
        validator = quick(closed, registry=Registry())
        problems = [
            f"{join_pointer(error.absolute_path) or '/'}: {excerpt(error.message)}"
            for error in islice(validator.iter_errors(given), _MOST)
        ]
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
                raise permanent_error(f"the task row's `{self.schema_field}` is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise permanent_error(f"the task row's `{self.schema_field}` must be a JSON schema")
        problem = next(_schema_problems(given), None)
        if problem:
            raise permanent_error(
                f"the task row's `{self.schema_field}` is not a JSON schema: {problem[0]} {problem[1]}"
            )
        return given

    def _find(self, row: TaskRow, response: dict[str, Any]) -> tuple[Any, str]:
        """Return the given value, or _ABSENT with the reason."""
        output = response.get("output") or []
        source = self.source or row.get("response_mode") or "text"
        if source == "text":
            text = assistant_text(output)
            if not self.strict:
                return find_json(text, _ABSENT), "the reply contains no JSON"
            try:
                return orjson.loads(text), ""
            except orjson.JSONDecodeError as error:
                return _ABSENT, f"the reply is not JSON: {error}"
        if source != "tool_call":
            raise permanent_error(f"the task row's `response_mode` is {source!r}, not text or tool_call")
        return self._find_argument(row, function_calls(output))

    def _find_argument(self, row: TaskRow, calls: list[dict[str, Any]]) -> tuple[Any, str]:
        if len(calls) != 1:
            return _ABSENT, f"there are {len(calls)} tool calls instead of one"
        tool, argument = self.tool or row.get("tool_name"), self.argument or row.get("tool_payload_key")
        if tool and calls[0].get("name") != tool:
            return _ABSENT, f"{calls[0].get('name')} was called instead of {tool}"
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
    """Return the schema with every property required and no others allowed, at every depth."""
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
    from jsonschema.exceptions import SchemaError

    draft = find_draft(schema)
    if draft is None:
        choices = ", ".join(f"http://{name}" for name in _DRAFTS)
        yield "/$schema", f"is {excerpt(repr(schema['$schema']))}: give one of {choices}, or remove it for 2020-12"
        return
    try:
        draft.check_schema(schema)
    except SchemaError as error:
        yield join_pointer(error.absolute_path), f"is not valid JSON Schema: {error.message}"
    except RecursionError:
        yield "", "is nested too deeply for a JSON schema"
    for reference in _references(schema):
        if not reference.startswith("#"):
            yield "", f"refers to {cut(reference, 80)!r}: only references within the schema, #/…, are followed"
    if endless := find_endless(schema):
        yield "", f"refers to itself endlessly through {cut(endless, 80)!r}, so no value can match it"


def _references(schema: Any) -> Iterator[str]:
    """Yield every reference."""
    for _, one in walk_json(schema):
        if isinstance(one, dict):
            yield from (one[key] for key in ("$ref", "$dynamicRef", "$recursiveRef") if isinstance(one.get(key), str))
