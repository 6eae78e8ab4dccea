"""The tool calls of an attempt, and those that a task expects."""

import json
from typing import Any, NamedTuple

import orjson

from apps.gym.traces.items import TaskRow, function_calls
from apps.gym.verifiers.answering import refuse


class Call(NamedTuple):
    """`arguments` is None where they are no JSON object."""

    name: str
    arguments: dict[str, Any] | None

    def shown(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in (self.arguments or {}).items())
        return f"{self.name}({given if self.arguments is not None else 'no JSON object'})"


def calls_made(response: dict[str, Any]) -> list[Call]:
    items = [item for item in response.get("output") or [] if isinstance(item, dict)]
    return [Call(str(item.get("name", "")), _arguments(item.get("arguments"))) for item in function_calls(items)]


def calls_expected(row: TaskRow, field: str) -> list[Call]:
    """From a list of `{"name", "arguments"}`, or one of them; arguments as an object or as its JSON.

    Raises VerifierError where the row has no such thing.
    """
    given = row.get(field)
    if given is None:
        raise refuse(f"the task row has no `{field}`, which this verifier needs")
    listed = given if isinstance(given, list) else [given]
    found = []
    for index, one in enumerate(listed):
        name = one.get("name") if isinstance(one, dict) else None
        arguments = _arguments(one.get("arguments")) if isinstance(one, dict) else None
        if not isinstance(name, str) or not name or arguments is None:
            wanted = '{"name": …, "arguments": {…}}'
            raise refuse(f"the task row's `{field}` must hold {wanted}: number {index + 1} does not")
        found.append(Call(name, arguments))
    return found


def same(one: object, other: object, *, relaxed: bool = False) -> bool:
    """JSON equality: 1 is 1.0, true is not 1. Relaxed, texts differ in neither case nor outer white space, and numbers
    may be written as texts. However deep they are."""
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
    """A text that two values share where they are the same in JSON."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    """1.0 as 1, so that numbers are equal as text."""
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


def _arguments(given: object) -> dict[str, Any] | None:
    if isinstance(given, str):
        if not given.strip():
            return {}
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError:
            return None
    return {} if given is None else given if isinstance(given, dict) else None
