"""Parse untrusted JSON, and reject values that later steps could not traverse, compute or store, with their paths."""

import json
import re
from typing import Any

from apps.gym.storable import REFUSAL, Path, clean_line, find_unstorable
from apps.gym.tasks.files.file_limits import MAX_DEPTH
from apps.gym.traces.items import read_json

_TOO_DEEP = f"This is nested deeper than {MAX_DEPTH} levels."
_LONGEST_NUMBER = 400
# Matches a text (complete or cut off, without backtracking), or a sign that changes the depth or ends a member.
_PART = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}:,]', re.DOTALL)


class JsonRefused(Exception):
    """Raised for rejected JSON.

    `path` leads to the value. `code` is not_json, too_deep, duplicate_key or unstorable.
    """

    def __init__(self, code: str, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.path = code, message, path


def load_strict(text: str) -> Any:
    """Return the value: at most 100 levels deep, without repeated names in an object, and storable.

    Raises JsonRefused.
    """
    # Check before parsing, which recurses. The number of brackets limits the depth, so few texts need the check.
    if text.count("{") + text.count("[") > MAX_DEPTH and (place := _deep_member(text)) is not None:
        raise JsonRefused("too_deep", _TOO_DEEP, place)
    try:
        value = json.loads(text, parse_int=_whole, parse_constant=float, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        place_in_text = f"line {error.lineno}, column {error.colno}"
        raise JsonRefused("not_json", f"{error.msg} ({place_in_text})") from None
    place = find_unstorable(value)
    if place is not None:
        raise JsonRefused("unstorable", REFUSAL, place)
    return value


def _deep_member(text: str) -> Path | None:
    """Return the path of the outermost member that is nested too deeply, () for a list, or None if nothing is."""
    depth, name, is_object = 0, "", False
    said = ""
    for found in _PART.finditer(text):
        part = found[0]
        if part in "{[":
            depth += 1
            is_object = is_object or (depth == 1 and part == "{")
            if depth > MAX_DEPTH:
                return _path_of(name) if is_object and name else ()
        elif part in "}]":
            depth -= 1
        elif depth == 1 and part == ":":
            name = said
        elif depth == 1 and part.startswith('"'):
            said = part
    return None


def _path_of(name: str) -> Path:
    plain = read_json(name)
    return (plain,) if isinstance(plain, str) and find_unstorable(plain) is None else ()


def _whole(digits: str) -> int:
    # Python does not parse integers of thousands of digits. A shorter one is out of range too.
    return int(digits[:_LONGEST_NUMBER])


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        message = f"The name “{clean_line(twice, 100)}” is repeated in one object."
        raise JsonRefused("duplicate_key", message)
    return members
