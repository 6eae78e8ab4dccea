"""The settings of pair rules and exports in the words of their forms."""

from collections.abc import Mapping
from typing import Any

from apps.gym.specs import spec_fields
from apps.gym.trainability import label_reason

MOST_LISTED = 10
"""Maximum entries shown of a list, such as rollout numbers."""


def describe_option(spec: type, name: str, value: object) -> tuple[str, str]:
    """Return the label of an option, and its value in words."""
    field = spec_fields(spec).get(name)
    label, names = (field.option.label, field.option.names) if field else (label_reason(name), {})
    if isinstance(value, bool):
        return label, "yes" if value else "no"
    if isinstance(value, list):
        more = f" and {len(value) - MOST_LISTED:,} more" if len(value) > MOST_LISTED else ""
        return label, ", ".join(map(str, value[:MOST_LISTED])) + more
    return label, names.get(str(value), str(value))


def describe_options(spec: type, values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the label and the value of each option that has one."""
    return [describe_option(spec, name, value) for name, value in values.items() if value is not None]


def summarize_options(spec: type, values: Mapping[str, Any]) -> str:
    """Return the options that differ from their defaults as one line: `minimum reward 0.7, deduplicate`."""
    fields = spec_fields(spec)
    told = []
    for name, value in values.items():
        if name in fields and fields[name].default == value:
            continue
        label, words = describe_option(spec, name, value)
        told.append(label.lower() if value is True else f"{label.lower()} {words}")
    return ", ".join(told)
