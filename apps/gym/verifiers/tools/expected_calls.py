"""Tool calls of an attempt, and the expected calls of a task."""

import json
import math
import re
from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from apps.gym.traces.items import TaskRow, call_arguments, function_calls
from apps.gym.verifiers.protocol import permanent_error

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A number as JSON writes it. 01234, +41 and 1_000 are texts."""

_WHOLE = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_LARGE = 2.0**53
"""JSON readers turn integers of more than 64 bits into floats, which are exact only below this number."""


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


def count_pairs(expected: int, made: int, matches: Callable[[int, int], bool]) -> int:
    """Return the size of a maximum matching of expected and made calls, by Kuhn's algorithm."""
    taken: dict[int, int] = {}
    matches = cache(matches)

    def pair(index: int, tried: set[int]) -> bool:
        for call in range(made):
            if call not in tried and matches(index, call):
                tried.add(call)
                if call not in taken or pair(taken[call], tried):
                    taken[call] = index
                    return True
        return False

    return sum(pair(index, set()) for index in range(expected))


def same(one: object, other: object, *, relaxed: bool = False) -> bool:
    """Return True if two JSON values are equal.

    Whole numbers are compared exactly, and 1 is 1.0. Other numbers may differ by a relative 1e-12, as 0.3 and
    0.30000000000000004 do. true is not 1. Nesting may be of any depth.

    If `relaxed`, texts are compared without case and outer white space, "3" is "3.0", and a text is the number that
    JSON writes so. "01234" is no number, and "3.10" is not "3.1": these may be codes and versions.
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
    has_float = isinstance(one, float) or isinstance(other, float)
    if has_float and isinstance(one, int | float) and isinstance(other, int | float):
        return _same_numbers(one, other)
    if not relaxed or isinstance(one, dict | list) or isinstance(other, dict | list):
        return False
    ours, theirs = _plain(one), _plain(other)
    if isinstance(one, str) and isinstance(other, str):
        return _whole_text(ours) == _whole_text(theirs)
    numbers = [_number(value) for value in (ours, theirs)]
    return ours == theirs if None in numbers else same(*numbers)


def _same_numbers(one: float, other: float) -> bool:
    try:
        ours, theirs = float(one), float(other)
    except OverflowError:
        return False
    if ours.is_integer() and theirs.is_integer():
        return ours == theirs and abs(ours) >= _LARGE
    return math.isclose(ours, theirs, rel_tol=1e-12)


def _plain(value: object) -> str:
    return "null" if value is None else str(value).strip().lower()


def _whole_text(text: str) -> str:
    """Return 3.0 as 3, and other texts unchanged."""
    whole = _WHOLE.fullmatch(text) if _NUMBER.fullmatch(text) else None
    return whole[1] if whole else text


def _number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    whole = _WHOLE.fullmatch(text)
    number = int(whole[1]) if whole else float(text)
    return number if math.isfinite(number) else None


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


def arrange(value: Any) -> tuple[str, Any]:
    """Return the value with its lists sorted at every depth, and the key by which it is sorted itself.

    Equal values in another order become equal. Raises RecursionError for deep nesting.
    """
    if isinstance(value, list):
        arranged = sorted(map(arrange, value), key=itemgetter(0))
        return f"[{','.join(key for key, _ in arranged)}]", [one for _, one in arranged]
    if isinstance(value, dict):
        members = {name: arrange(value[name]) for name in sorted(value)}
        keys = (f"{json.dumps(name)}:{key}" for name, (key, _) in members.items())
        return f"{{{','.join(keys)}}}", {name: one for name, (_, one) in members.items()}
    # Fifteen digits are the same for floats that differ only by their representation.
    return (f"{value:.15g}" if isinstance(value, float) and not value.is_integer() else json_key(value)), value
