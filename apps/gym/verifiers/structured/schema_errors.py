"""Explain why JSON does not fit a schema: place, value, and what is expected."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import msgspec

from apps.gym.redaction.shortening import pointer_step, shorten

_NOUNS = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}
_MOST = 20


def explain_problems(given: object, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a JSON pointer and a sentence for each problem, at most twenty."""
    # Imported here, because it takes 0.1 s that processes without problems do not need to spend.
    from jsonschema import Draft202012Validator

    errors = sorted(
        Draft202012Validator(schema).iter_errors(given), key=lambda error: list(map(str, error.absolute_path))
    )
    for error in errors[:_MOST]:
        yield from _explain(error)


def join_pointer(path: Any) -> str:
    return "".join(f"/{pointer_step(step, 80)}" for step in path)


def _explain(error: Any) -> Iterator[tuple[str, str]]:
    at, wanted, schema = join_pointer(error.absolute_path), error.validator_value, error.schema
    match error.validator:
        case "required":
            for name in wanted:
                if name not in error.instance:
                    yield f"{at}/{name}", "is missing: this verifier needs it"
        case "additionalProperties":
            known = [name for name in schema["properties"] if name != "type"]
            for name in sorted(set(error.instance) - set(schema["properties"])):
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}? " if close else ""
                pointer = at + join_pointer([name])
                yield pointer, f"is an unknown parameter: {hint}parameters are {', '.join(known) or 'none'}"
        case _:
            yield at, f"is {_show(error.instance)}: give {_describe(schema)}"


def _describe(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if "anyOf" in schema:
        return " or ".join(_describe(choice) for choice in schema["anyOf"])
    noun = _NOUNS.get(str(schema.get("type")), "something else")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{noun} from {low:g} to {high:g}"
    bounds = {
        "minimum": "{:g} or more",
        "maximum": "{:g} or less",
        "minLength": "at least {} characters",
        "maxLength": "at most {:,} characters",
    }
    bounds |= {"minItems": "at least {}", "maxItems": "at most {:,}", "pattern": "the form {}"}
    told = [text.format(schema[key]) for key, text in bounds.items() if key in schema]
    return f"{noun} of {' and '.join(told)}" if told else noun


def _show(value: object) -> str:
    return shorten(msgspec.json.encode(value).decode(), 80)
