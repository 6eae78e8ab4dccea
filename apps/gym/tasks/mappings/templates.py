"""Prompt templates, for example `Solve: {question}`.

Placeholders are dotted paths into the row, and literal braces are doubled, as in NeMo Gym's prompt files. No other
formatting of Python is supported, because templates and rows are untrusted.
"""

from functools import lru_cache
from string import Formatter
from typing import Any

from apps.gym.redaction.shortening import pointer_step
from apps.gym.traces.items import dump_json

MISSING: Any = object()


def look_up(row: Any, path: str) -> Any:
    """Return the value at the path, or MISSING. Null counts as missing."""
    if isinstance(row, dict) and path in row:
        return MISSING if row[path] is None else row[path]
    value = row
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return MISSING
    return MISSING if value is None else value


def pointer_of(path: str) -> str:
    return "/" + pointer_step(path, 500).replace(".", "/")


class TemplateRefused(Exception):
    """Raised for an invalid template, with the problem as message."""


class GapEmpty(Exception):
    """Raised if a row lacks a value for the template. The message is its JSON pointer."""


@lru_cache(maxsize=256)
def parse_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Return pairs of text and the path of the placeholder after it. Raises TemplateRefused."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise TemplateRefused(f"Invalid braces ({error}). Write a literal brace twice: {{{{ or }}}}") from None
    for _, path, form, conversion in parsed:
        if path == "":
            raise TemplateRefused("Placeholder {} needs a field name, for example {question}")
        if path is not None and (form or conversion):
            raise TemplateRefused(f"{{{path}…}} has a format specification. Only the name is allowed between braces")
    return tuple((text, path) for text, path, _, _ in parsed)


def fill_template(template: str, row: dict[str, Any]) -> str:
    """Return the filled template. Values other than text are written as JSON. Raises GapEmpty."""
    texts = []
    for text, path in parse_template(template):
        texts.append(text)
        if path is not None:
            value = look_up(row, path)
            if value is MISSING:
                raise GapEmpty(pointer_of(path))
            texts.append(value if isinstance(value, str) else dump_json(value))
    return "".join(texts)


def template_paths(template: str) -> list[str]:
    return [path for _, path in parse_template(template) if path is not None]
