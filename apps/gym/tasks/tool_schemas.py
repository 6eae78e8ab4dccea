"""Parse tools written by users into flat Responses tools, and report every mistake with its place."""

import re
from typing import Any

from apps.gym.redaction.shortening import pointer_step, shorten
from apps.gym.traces.items import Tool

MOST_TOOLS = 128

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TYPES = "array, boolean, integer, null, number, object or string"
_MOST_PROBLEMS = 20
_SHOWN = 200


class ToolsRefused(Exception):
    """Raised for invalid tools. `problems` are sentences that start with a JSON pointer into the input."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_tools(given: object) -> list[Tool]:
    """Return function tools with unique names, whose parameters are JSON Schemas of objects.

    Nested tools of Chat Completions are accepted too. Raises ToolsRefused with all problems at once.
    """
    if not isinstance(given, list):
        raise ToolsRefused(["Give a list of tools."])
    if len(given) > MOST_TOOLS:
        raise ToolsRefused([f"There are {len(given)} tools: give at most {MOST_TOOLS}."])
    tools: list[Tool] = []
    problems: list[str] = []
    for index, tool in enumerate(given):
        at, flat = _flatten(f"/{index}", tool)
        found = _problems_of(at, flat)
        if not found and any(flat["name"] == other["name"] for other in tools):
            found = [f"{at}/name: there is another tool {flat['name']!r}."]
        problems += found
        tools += [] if found else [flat]
    if problems:
        raise ToolsRefused(problems[:_MOST_PROBLEMS])
    return tools


def _flatten(at: str, tool: Any) -> tuple[str, Any]:
    nested = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(nested, dict):
        return at, dict(tool) if isinstance(tool, dict) else tool
    return f"{at}/function", {**nested, "type": tool.get("type", "function")}


def _problems_of(at: str, tool: Any) -> list[str]:
    if not isinstance(tool, dict):
        return [f"{at} must be an object with type, name, description and parameters."]
    tool.setdefault("type", "function")
    if tool["type"] != "function":
        return [f"{at}/type must be “function”, not {_show(tool['type'])}. Other types are provider-specific."]
    problems = []
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(f"{at}/name must be 1 to 64 letters, digits, _ or -, not {_show(name)}.")
    if not isinstance(tool.get("description", ""), str):
        problems.append(f"{at}/description must be a text.")
    if not isinstance(tool.get("strict"), bool | None):
        problems.append(f"{at}/strict must be true or false.")
    if tool.get("parameters") is None:
        tool["parameters"] = {"type": "object", "properties": {}}
    return problems + _problems_of_schema(f"{at}/parameters", tool["parameters"])


def _problems_of_schema(at: str, schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return [f"{at} must be a JSON Schema, an object, not {_show(schema)}."]
    # Imported here, because it takes 0.1 s that most processes do not need to spend.
    from jsonschema import Draft202012Validator

    try:
        found = list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema))
    except RecursionError:
        return [f"{at} is nested too deep."]
    problems = [_explain(f"{at}{_pointer(error.absolute_path)}", error) for error in found]
    if not problems and schema.get("type") != "object":
        problems = [f"{at}/type must be “object”: the arguments of a call are an object."]
    return problems


def _explain(at: str, error: Any) -> str:
    if at.endswith("/type"):
        return f"{at} is {_show(error.instance)}: a type is {_TYPES}, or a list of these."
    message = shorten(error.message, _SHOWN)
    return f"{at} is not a JSON Schema: {message}."


def _pointer(path: Any) -> str:
    return "".join(f"/{pointer_step(step, _SHOWN)}" for step in path)


def _show(value: object) -> str:
    return shorten("nothing" if value is None else repr(value), 60)
