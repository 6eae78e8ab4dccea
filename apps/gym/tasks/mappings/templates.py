"""Prompt templates: `Solve: {question}`. Gaps are dotted paths into the row, and literal braces are doubled, as in NeMo
Gym's prompt files; nothing else of Python's formatting works, since templates and rows are strangers'."""

from functools import lru_cache
from string import Formatter
from typing import Any

from apps.gym.tasks.mappings.paths import MISSING, look_up, pointer_of
from apps.gym.traces.items import dump_json


class TemplateRefused(Exception):
    """What is wrong with a template, in words."""


class GapEmpty(Exception):
    """A row lacks what the template needs: the JSON pointer of it."""


@lru_cache(maxsize=256)
def parse_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Pairs of text and the path of the gap that follows it. Raises TemplateRefused."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise TemplateRefused(f"{error}: write a literal brace twice, {{{{ or }}}}") from None
    for _, path, form, conversion in parsed:
        if path == "":
            raise TemplateRefused("{} names no field: write {question}")
        if path is not None and (form or conversion):
            raise TemplateRefused(
                f"{{{path}…}} has a format after its name: only the name may stand between the braces"
            )
    return tuple((text, path) for text, path, _, _ in parsed)


def fill_template(template: str, row: dict[str, Any]) -> str:
    """Raises GapEmpty. What is no text is written as JSON."""
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
