"""Make tools from typed methods: a JSON schema of the arguments, and conversion of arguments from JSON."""

import inspect
import math
import re
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec

from apps.gym.environments.protocol import ToolRefused
from apps.gym.storable import walk_json
from apps.gym.traces.items import Tool, dump_json

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARAMETER = re.compile(r"^[ \t]*(\w+)(?:[ \t]*\([^)]*\))?:[ \t]+(\S.*)$")
_HEADING = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises):$")
_DEEPEST = 10
_OF_THE_PROTOCOL = {"seed", "respond", "verify", "close", "make_task", "solve", "cases", "kit", "own_cases", "row"} | {
    *("reset", "step", "seed_session", "aggregate_metrics", "reverify_mode")
}
"""Names that the base class or the server protocol uses. Models must not call them as tools."""


class WrittenTool(msgspec.Struct, frozen=True):
    """A tool method: its description for models, and how its arguments are read."""

    tool: Tool
    arguments: type[msgspec.Struct]
    method: str

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the types of the method. Raises ToolRefused."""
        try:
            read = msgspec.convert(given, self.arguments)
        except msgspec.ValidationError as problem:
            raise ToolRefused("bad_arguments", f"{self.tool['name']}: {problem}") from None
        return {field: getattr(read, field) for field in read.__struct_fields__}


def describe_tool(method: Callable[..., Any]) -> WrittenTool:
    """Describe a tool method. Raises TypeError with the problem."""
    name = method.__name__
    if name in _OF_THE_PROTOCOL:
        raise TypeError(f"the tool {name}: GymWeb, or the protocol of its servers, already has {name}. Rename it")
    if not _NAME.fullmatch(name):
        raise TypeError(f"the tool {name}: a name has letters, digits, - and _, 64 at most")
    arguments = _arguments(method)
    description, told = read_docstring(inspect.getdoc(method) or "")
    if not description:
        raise TypeError(f"the tool {name}: add a docstring. Models see only the docstring")
    schema = _schema(arguments, told, name)
    return WrittenTool(
        tool={
            "type": "function",
            "name": name,
            "description": description,
            "parameters": schema,
            # The strict mode of endpoints rejects schemas with defaults.
            "strict": sorted(schema["required"]) == sorted(schema["properties"]),
        },
        arguments=arguments,
        method=name,
    )


def _arguments(method: Callable[..., Any]) -> type[msgspec.Struct]:
    name = method.__name__
    try:
        hints = get_type_hints(method, include_extras=True)
    except Exception as problem:
        # Annotations given as text are evaluated only here and may raise anything.
        raise TypeError(f"the tool {name}: its types cannot be read: {type(problem).__name__}: {problem}") from None
    fields: list[Any] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"the tool {name}: give each argument its own name instead of {parameter}")
        if parameter.name not in hints:
            raise TypeError(f"the tool {name}: give {parameter.name} a type, for example {parameter.name}: str")
        kept = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hints[parameter.name], *kept))
    try:
        return msgspec.defstruct(f"{name}_arguments", fields, forbid_unknown_fields=True, kw_only=True)
    except TypeError as problem:
        raise TypeError(f"the tool {name}: {problem}") from None


def _schema(arguments: type[msgspec.Struct], told: dict[str, str], name: str) -> dict[str, Any]:
    try:
        (schema,), parts = msgspec.json.schema_components([arguments], ref_template="{name}", schema_hook=_refuse_type)
    except TypeError as problem:
        raise TypeError(f"the tool {name}: {problem}") from None
    whole = _inline(schema, parts, name)
    properties: dict[str, Any] = whole.get("properties", {})
    for parameter, text in told.items():
        if parameter in properties:
            properties[parameter]["description"] = text
    return {
        "type": "object",
        "properties": properties,
        "required": whole.get("required", []),
        "additionalProperties": False,
    }


def _refuse_type(kind: type) -> dict[str, Any]:
    takes = "str, int, float, bool, list[…], dict[str, …], Literal[…] or a dataclass"
    raise TypeError(f"{kind.__name__} cannot be represented in JSON. Use {takes}")


def _inline(schema: Any, parts: dict[str, Any], name: str, depth: int = 0) -> Any:
    """Return the schema without references, which not every endpoint supports."""
    if depth > _DEEPEST * 4:
        raise TypeError(f"the tool {name}: recursive types are not supported")
    if isinstance(schema, list):
        return [_inline(part, parts, name, depth + 1) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = {**parts[schema["$ref"]], **{key: value for key, value in schema.items() if key != "$ref"}}
        return _inline(found, parts, name, depth + 1)
    kept = {key: value for key, value in schema.items() if key != "title"}
    return {key: _inline(value, parts, name, depth + 1) for key, value in kept.items()}


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the descriptions of the tool and its parameters: lines `name: text`, continued by indented lines."""
    does: list[str] = []
    told: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if found := _PARAMETER.match(line):
            current = found[1]
            told[current] = found[2].strip()
        elif _HEADING.match(line.strip()):
            current = ""
        elif current and line[:1].isspace() and line.strip():
            told[current] += f" {line.strip()}"
        elif line.strip():
            current = ""
            does.append(line.strip())
    return " ".join(does), told


def write_output(value: object) -> str:
    """Return text unchanged, other values as JSON.

    Raises TypeError for unsupported types, ValueError for unsupported numbers and texts.
    """
    if isinstance(value, str):
        if not value.isascii() and (half := _HALF_PAIR.search(value)):
            raise ValueError(f"the text has half a surrogate pair at character {half.start():,}, not valid Unicode")
        return value
    try:
        encoded = msgspec.json.encode(value)
        # A number that is not finite is written as null.
        for path, one in walk_json(msgspec.to_builtins(value)) if b"null" in encoded else ():
            if isinstance(one, float) and not math.isfinite(one):
                place = "".join(f"/{step}" for step in path) or "the top"
                raise ValueError(f"there is a number at {place} that is not finite: JSON has none")
        return encoded.decode()
    except (OverflowError, UnicodeEncodeError):
        return dump_json(str(value))


_HALF_PAIR = re.compile("[\ud800-\udfff]")
