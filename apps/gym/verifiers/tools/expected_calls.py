"""Tool calls of an attempt, and the expected calls of a task."""

import json
from typing import Any, NamedTuple

from apps.gym.traces.items import TaskRow, call_arguments, function_calls
from apps.gym.verifiers.protocol import permanent_error


class Call(NamedTuple):
    """A tool call. `arguments` is None if they are not a JSON object."""

    name: str
    arguments: dict[str, Any] | None

    def shown(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in (self.arguments or {}).items())
        return f"{self.name}({given if self.arguments is not None else 'no JSON object'})"


def calls_made(response: dict[str, Any]) -> list[Call]:
    items = [item for item in response.get("output") or [] if isinstance(item, dict)]
    return [Call(str(item.get("name", "")), call_arguments(item)) for item in function_calls(items)]


def calls_expected(row: TaskRow, field: str) -> list[Call]:
    """Return the expected calls, from a list of `{"name", "arguments"}` or a single one.

    Arguments are an object or its JSON text.

    Raises VerifierError if the row has no valid calls.
    """
    given = row.get(field)
    if given is None:
        raise permanent_error(f"the task row has no `{field}`, which this verifier needs")
    listed = given if isinstance(given, list) else [given]
    found = []
    for index, one in enumerate(listed):
        name = one.get("name") if isinstance(one, dict) else None
        arguments = call_arguments(one) if isinstance(one, dict) else None
        if not isinstance(name, str) or not name or arguments is None:
            wanted = '{"name": …, "arguments": {…}}'
            raise permanent_error(f"the task row's `{field}` must hold {wanted}: number {index + 1} does not")
        found.append(Call(name, arguments))
    return found


def same(one: object, other: object, *, relaxed: bool = False) -> bool:
    """Return True if two JSON values are equal: 1 is 1.0, true is not 1.

    If `relaxed`, texts are compared without case and outer white space, and numbers may be texts. Nesting may be of any
    depth.
    """
    left = [(one, other)]
    while left:
        ours, theirs = left.pop()
        if isinstance(ours, dict) and isinstance(theirs, dict):
            if ours.keys() != theirs.keys():
                return False
            left.extend((value, theirs[key]) for key, value in ours.items())
        elif isinstance(ours, list) and isinstance(theirs, list):
            if len(ours) != len(theirs):
                return False
            left.extend(zip(ours, theirs, strict=True))
        elif not _same_end(ours, theirs, relaxed):
            return False
    return True


def _same_end(one: object, other: object, relaxed: bool) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other or (relaxed and str(one).lower() == str(other).strip().lower())
    if one == other:
        return True
    if not relaxed or isinstance(one, dict | list) or isinstance(other, dict | list):
        return False
    return _plain(one) == _plain(other)


def json_key(value: object) -> str:
    """Return a text that is the same for two values if they are equal in JSON."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    """Return 1.0 as 1, so that equal numbers are equal as text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list) else value


def _plain(value: object) -> object:
    text = "null" if value is None else str(value).strip().lower()
    try:
        return float(text)
    except ValueError:
        return text
