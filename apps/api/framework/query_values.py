"""Values of query parameters that no filter reads."""

from collections.abc import Collection, Mapping
from typing import Any

from rest_framework.request import Request

from apps.api.framework.pagination import MAX_KEY
from apps.api.framework.problems import bad_query


def read_choice(request: Request, name: str, choices: Collection[str], *, default: str = "", message: str = "") -> str:
    """Return one of the choices. Raise QueryProblem."""
    value = request.query_params.get(name, default)
    if value not in choices:
        raise bad_query(name, message or f"Give {' or '.join(choices)}.")
    return value


def read_whole(request: Request, name: str, *, low: int = 0, high: int = MAX_KEY, message: str = "") -> int | None:
    """Return a whole number within its limits, None without the parameter. Raise QueryProblem."""
    text = request.query_params.get(name)
    if text is None:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not low <= number <= high:
        raise bad_query(name, message or f"`{name}` must be a whole number from {low} to {high}.")
    return number


def read_format(request: Request, formats: Mapping[str, tuple[str, Any]]) -> tuple[str, str, Any]:
    """Return name, content type and writer of the requested file format. Raise QueryProblem."""
    name = read_choice(request, "format", formats, default="ndjson")
    return name, *formats[name]
