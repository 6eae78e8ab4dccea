"""Create options and arguments from the fields of API operations (operations.json)."""

import inspect
import json
import math
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from gymweb_client.cli.connection import WrongUsage

Field = dict[str, Any]
Operation = dict[str, Any]
NULL = object()
"""Represents null, because None means that an option was not given."""
ALIASES = {"policy_model": ["--model"], "repeats": ["-k"]}
METAVARS = {"integer": "N", "number": "X", "object": "NAME=VALUE", "array": "JSON", "json": "JSON", "string": "TEXT"}
TYPES = {"integer": int, "number": float}


@cache
def load_operations() -> dict[str, Operation]:
    operations: dict[str, Operation] = json.loads(Path(__file__).with_name("operations.json").read_bytes())
    return operations


def parameter_name(field: Field) -> str:
    """Return the name of the Python parameter. Path and body may have a field of the same name."""
    return f"{field['in']}_{field['name']}".replace("-", "_").lower()


def declare_parameter(field: Field, names: set[str], *, is_argument: bool, is_optional: bool) -> inspect.Parameter:
    """Return the parameter of a command. `names` are the names of all fields of the operation."""
    is_many = field["type"] in {"array", "object"}
    annotation: Any = bool | None if field["type"] == "boolean" else TYPES.get(_kind(field), str)
    default = ... if field.get("required") and not is_optional else None
    told: dict[str, Any] = {"help": escape(_help_text(field)), "show_default": False}
    if field["type"] != "boolean":
        told |= {"parser": lambda text: _read(field, text), "metavar": _metavar(field)}
        if choices := field.get("choices"):
            told["autocompletion"] = lambda: choices
    if is_argument:
        told["metavar"] = (
            field["name"].upper() if "metavar" not in told or not field.get("choices") else told["metavar"]
        )
        info = typer.Argument(default, **told)
    else:
        panel = "Other options" if field["in"] == "header" else None
        info = typer.Option(default, *_option_names(field, names), rich_help_panel=panel, **told)
    return inspect.Parameter(
        parameter_name(field),
        inspect.Parameter.KEYWORD_ONLY,
        default=info,
        annotation=list[annotation] if is_many else annotation,
    )


def join_values(field: Field, given: Any) -> Any:
    """Combine the given parts of a list or object to the value to send."""
    if field["type"] == "array":
        return [item for part in given for item in (part if isinstance(part, list) else [part])]
    if field["type"] == "object":
        if not all(isinstance(part, dict) for part in given):
            raise WrongUsage(f"{option_name(field['name'])}: give NAME=VALUE or a JSON object.")
        return {name: value for part in given for name, value in part.items()}
    return None if given is NULL else given


def option_name(name: str) -> str:
    return "--" + name.replace("_", "-").lower()


def _option_names(field: Field, names: set[str]) -> list[str]:
    name = field["name"]
    if field.get("secret"):
        return [option_name(f"{name}_env")]
    if field["type"] == "boolean":
        return [f"{option_name(name)}/--no-{option_name(name)[2:]}"]
    known = [*ALIASES.get(name, []), option_name(name)]
    if field["type"] in {"array", "object"} and name.endswith("s"):
        singular = name.removesuffix("es") if name.endswith("sses") else name.removesuffix("s")
        known = [option_name(singular), *known] if singular not in names else known
    return known


def _help_text(field: Field) -> str:
    # The API's null is written as `none` in commands.
    parts = [re.sub(r"\b[Nn]ull: ", "none: ", field["help"].rstrip("."))] if field.get("help") else []
    if field.get("secret"):
        parts = ["Name of an environment variable with the secret"]
        if field["type"] == "object":
            parts = ["Name of an environment variable with a JSON object of secrets"]
    elif field["type"] == "object":
        parts.append("Repeatable; or a JSON object, or @FILE")
    elif field["type"] == "array":
        parts.append("JSON or @FILE" if field["items"] in {"object", "array"} else "Repeatable")
    if field.get("from_file"):
        parts.append("Text or @FILE")
    if "default" in field:
        parts.append(f"Default: {json.dumps(field['default'])}")
    return "".join(f"{part}. " for part in parts).rstrip()


def _metavar(field: Field) -> str:
    text = "|".join(map(str, field.get("choices", ()))) or (
        "VARIABLE" if field.get("secret") else METAVARS[_kind(field)]
    )
    return f"{text}|none" if field.get("nullable") else text


def _kind(field: Field) -> str:
    """Return the type of a single value: for arrays, of an item."""
    kind: str = field["items"] if field["type"] == "array" else field["type"]
    return {"boolean": "json"}.get(kind, kind)


def _read(field: Field, text: str) -> Any:
    """Convert the text of a value. Raise BadParameter, which typer prints with the option."""
    try:
        return _convert(field, _kind(field), text)
    except (ValueError, OSError) as wrong:
        raise typer.BadParameter(escape(str(wrong))) from None


def _convert(field: Field, kind: str, text: str) -> Any:
    if field.get("nullable") and text.lower() == "none":
        return NULL
    if field.get("secret"):
        if text not in os.environ:
            raise ValueError(f"The environment variable {text} is not set.")
        text = os.environ[text]
    if field["type"] == "array" and text.startswith("["):
        return _parse(text, list)
    if kind in TYPES:
        return _check_limits(field, _number(kind, text))
    if kind in {"object", "array", "json"}:
        return _read_json(kind, text)
    return _read_text(field, text)


def _read_text(field: Field, text: str) -> str:
    if field.get("from_file"):
        text = _content(text)
    choices = field.get("choices")
    if choices and text not in choices:
        raise ValueError(f"{text!r} is not one of: {', '.join(map(str, choices))}.")
    return text


def _number(kind: str, text: str) -> float:
    try:
        number: float = TYPES[kind](text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a {'whole ' if kind == 'integer' else ''}number.")
    return number


def _check_limits(field: Field, number: float) -> float:
    low, high = field.get("min", -math.inf), field.get("max", math.inf)
    if not low <= number <= high:
        expected = f"at least {low}" if number < low else f"at most {high}"
        raise ValueError(f"{number} is outside the limits: give {expected}.")
    return number


def _read_json(kind: str, text: str) -> Any:
    """Parse JSON or @FILE. For objects, also NAME=VALUE, where VALUE is JSON or text."""
    name, equals, value = text.partition("=")
    if kind != "object" or not equals or text.startswith(("{", "[", "@")):
        return _parse(_content(text), list if kind == "array" else None)
    try:
        return {name: json.loads(value)}
    except ValueError:
        return {name: value}


def _content(text: str) -> str:
    """Return the content of @FILE (`@-`: standard input). Other text is returned unchanged."""
    if not text.startswith("@"):
        return text
    return sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")


def _parse(text: str, expected: type | None) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        try:
            found = [json.loads(line) for line in text.split("\n") if line.strip()]
        except ValueError as wrong:
            raise ValueError(f"Invalid JSON: {wrong}.") from None
    if expected and not isinstance(found, expected):
        raise ValueError("Give a JSON list.")
    return found
