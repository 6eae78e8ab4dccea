"""Change how tasks are asked: a collection's prompt template replaces the rows' own prompts."""

from typing import Any

import msgspec

from apps.gym.errors import EnvironmentFault
from apps.gym.tasks.mappings.templates import GapEmpty, TemplateRefused, fill_template, parse_template
from apps.gym.traces.items import TaskRow, input_items, message, text_of

MAX_TEMPLATE = 20_000
SYSTEM_ROLES = {"system", "developer"}


class PromptTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A prompt template.

    Empty parts keep those of the row.

    A placeholder is a dotted path into the row; `{prompt}` is the original user message.
    """

    system: str = ""
    """Replaces the row's system messages and instructions."""
    user: str = ""
    """Replaces the row's last user message."""


def find_template_problems(template: PromptTemplate) -> dict[str, str]:
    """Return the problems by part."""
    found = {}
    for name in ("system", "user"):
        text = getattr(template, name)
        if len(text) > MAX_TEMPLATE:
            found[name] = f"At most {MAX_TEMPLATE:,} characters."
            continue
        try:
            parse_template(text)
        except TemplateRefused as refusal:
            found[name] = f"{refusal}."
    return found


def apply_prompt_template(template: PromptTemplate, row: TaskRow) -> TaskRow:
    """Return the row with the prompt of the template. Raises GapEmpty."""
    if not template.system and not template.user:
        return row
    items = input_items(row)
    last = next((place for place in reversed(range(len(items))) if items[place].get("role") == "user"), None)
    known: dict[str, Any] = {**row, "prompt": text_of(items[last]) if last is not None else ""}
    params = dict(row["responses_create_params"])
    if template.user:
        asked = message("user", fill_template(template.user, known))
        items = [*items, asked] if last is None else [*items[:last], asked, *items[last + 1 :]]
    if template.system:
        params.pop("instructions", None)
        others = [item for item in items if item.get("role") not in SYSTEM_ROLES]
        items = [message("system", fill_template(template.system, known)), *others]
    return {**row, "responses_create_params": {**params, "input": items}}


def apply_template_or_fail(template: PromptTemplate, row: TaskRow) -> TaskRow:
    """Apply the template for an attempt. Raises a permanent EnvironmentFault if the row lacks a value."""
    try:
        return apply_prompt_template(template, row)
    except GapEmpty as gap:
        raise EnvironmentFault(f"The prompt template needs {gap}, which this task lacks.").permanent() from None
