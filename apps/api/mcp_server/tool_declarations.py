"""Declarations of MCP tools.

A tool calls operations of the API. Its mapped arguments have the OpenAPI schemas of the first operation.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from apps.accounts.permissions import Permission
from apps.api.framework.declared_fields import suggest_name
from apps.api.framework.table_permissions import find_refusal
from apps.api.mcp_server.operation_calls import Api, Operation, ToolError
from apps.gym.redaction.shortening import cut

Schema = dict[str, Any]
Arguments = dict[str, Any]

MAX_ROWS = 25
DEFAULT_ROWS = 15
LIMIT: Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_ROWS,
    "default": DEFAULT_ROWS,
    "description": "Rows per reply.",
}
CURSOR: Schema = {"type": "string", "description": "`next_cursor` of the previous reply, for the rest of the list."}
PAGE = {"limit": LIMIT, "cursor": CURSOR}
"""Schemas of the arguments that page through a list."""

# Keywords of OpenAPI that JSON Schema lacks or that agents do not need.
_OMITTED_KEYWORDS = ("nullable", "readOnly", "writeOnly", "example", "format", "title", "x-spec-enum-id")
# drf-spectacular lists the choices of a field in its description.
_CHOICE = re.compile(r"\n*^\* `(\w+)` - (.*)$", re.MULTILINE)

_MAX_INTEGER = 2**53 - 1
"""The largest integer that JavaScript clients read exactly. Schemas show it in place of larger limits."""


def id_schema(noun: str) -> Schema:
    """Return the schema of an argument that is the id of a row."""
    return {"type": "integer", "minimum": 1, "maximum": _MAX_INTEGER, "description": f"Id of the {noun}."}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool of the MCP server.

    `mapped_arguments` are names of parameters or body fields of the first operation, whose schemas they use;
    `renamed_arguments` have other names there. `own_arguments` has the schemas of other arguments; it can also replace
    mapped schemas. `run` returns the reply, in which untrusted text is not yet marked (untrusted_text.py). Without it,
    the first operation does: `listed` are the fields of the rows that it lists, or `reply` the name of its response.
    """

    name: str
    title: str
    description: str
    operations: tuple[Operation, ...]
    run: Callable[[Api, Arguments], Mapping[str, Any]] | None = None
    listed: str = ""
    reply: str = ""
    mapped_arguments: tuple[str, ...] = ()
    renamed_arguments: Mapping[str, str] = field(default_factory=dict)
    own_arguments: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    writes: bool = False
    idempotent: bool = False

    @property
    def permissions(self) -> list[Permission]:
        return list(dict.fromkeys(operation.permission for operation in self.operations))

    @cached_property
    def input_schema(self) -> Schema:
        schemas = describe_arguments(self.operations[0])
        mapped = {name: schemas[parameter] for name, parameter in self._parameters.items()}
        properties = mapped | dict(self.own_arguments)
        # Required arguments come first, as in the calls that agents write.
        ordered = {name: properties[name] for name in (*self.required, *properties)}
        return {"type": "object", "properties": ordered, "required": [*self.required], "additionalProperties": False}

    @property
    def _parameters(self) -> dict[str, str]:
        """Return the names of mapped arguments in the first operation."""
        return {**{name: name for name in self.mapped_arguments}, **self.renamed_arguments}

    def operation_arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapped arguments under the names that the first operation uses, with the tool's own defaults."""
        mapped = self._parameters
        defaults = {name: schema["default"] for name, schema in self.own_arguments.items() if "default" in schema}
        return {mapped[name]: value for name, value in {**defaults, **given}.items() if name in mapped}

    def answer(self, api: Api, given: Arguments) -> Mapping[str, Any]:
        if self.run is not None:
            return self.run(api, given)
        arguments = self.operation_arguments(given)
        if self.reply:
            return {self.reply: api.call(self.operations[0], body=arguments)}
        page = api.call(self.operations[0], query={**arguments, "fields": self.listed})
        return pick(page, ("results", "next_cursor", "unindexed"))

    def find_refusal(self, user: object, api_key: object) -> str:
        """Return why the caller may not use this tool. Empty if the caller may."""
        return next(filter(None, (find_refusal(user, api_key, one) for one in self.permissions)), "")

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise ToolError for unknown, missing or invalid arguments."""
        known = self.input_schema["properties"]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ToolError(f"Unknown argument “{cut(unknown[0], 50)}”. {suggest_name(unknown[0], [*known])}")
        missing = [name for name in self.required if name not in given]
        if missing:
            description = known[missing[0]].get("description", "")
            raise ToolError(f"The argument “{missing[0]}” is missing. {description}".strip())
        error = best_match(Draft202012Validator(self.input_schema).iter_errors(given))
        if error is not None:
            place = ".".join(map(str, error.absolute_path))
            raise ToolError(f"{place}: {cut(error.message, 500)}")


def pick(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def describe_arguments(operation: Operation) -> dict[str, Schema]:
    """Return the schemas of the query parameters and body fields of an operation."""
    match = operation.match
    generator = SchemaGenerator(patterns=[path(match.route.removeprefix("api/"), match.func)])  # type: ignore[no-untyped-call]
    ((_, methods),) = generator.parse(None, True).items()  # type: ignore[no-untyped-call]
    components = generator.registry.build({})["schemas"]
    found = methods[operation.method]
    described = {
        one["name"]: _plain({**one["schema"], "description": one.get("description", "")}, components)
        for one in found.get("parameters", ())
        if one["in"] == "query"
    }
    body = found.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        described |= _plain(body["schema"], components)["properties"]
    return described


def _plain(schema: Any, components: Mapping[str, Any]) -> Any:
    """Convert an OpenAPI schema to JSON Schema: resolve references, and remove keywords that only OpenAPI has."""
    if isinstance(schema, list):
        return [_plain(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(components[schema["$ref"].rpartition("/")[2]], components)
    if len(schema.get("allOf", ())) == 1:
        other_keywords = {key: each for key, each in schema.items() if key != "allOf"}
        return _plain({**_plain(schema["allOf"][0], components), **other_keywords}, components)
    plain = {key: _plain(each, components) for key, each in schema.items() if key not in _OMITTED_KEYWORDS}
    if plain.get("maximum", 0) > _MAX_INTEGER:
        plain["maximum"] = _MAX_INTEGER
    if schema.get("nullable") and isinstance(plain.get("type"), str):
        plain["type"] = [plain["type"], "null"]
    text = _CHOICE.sub(_describe_choice, str(plain.pop("description", ""))).strip()
    return {**plain, "description": text} if text else plain


def _describe_choice(found: re.Match[str]) -> str:
    """Return a sentence about a choice, or nothing if its label only repeats the value, which `enum` already has."""
    value, label = found.groups()
    return "" if value.replace("_", " ") == label else f" `{value}`: {label}."
