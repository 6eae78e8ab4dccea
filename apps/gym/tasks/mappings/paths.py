"""Dotted paths into a row: `reward_model.ground_truth`, `messages.0.content`. A name that holds dots itself is found
as it stands first."""

from typing import Any

from apps.gym.redaction.shortening import pointer_step

MISSING: Any = object()


def look_up(row: Any, path: str) -> Any:
    """What stands there, or MISSING. A null counts as missing: it says that there is no value."""
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
