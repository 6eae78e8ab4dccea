"""Read one line of a file as a row, strictly, or refuse it with the place and a remedy."""

import json
import re
from json import JSONDecodeError
from typing import Any, TypeVar

import orjson

from apps.gym.redaction.shortening import cut
from apps.gym.tasks.files.file_limits import MAX_DEPTH
from apps.gym.traces.items import TaskRow

Expected = TypeVar("Expected")


class RowRefused(Exception):
    """Raised for an invalid line.

    `code` is short and stable. `pointer` (RFC 6901) is the place in the row, if known. `message` is for users and
    begins with it. `line` is the number of the line in a row that spans several, else 0.
    """

    def __init__(self, code: str, message: str, *, pointer: str = "", line: int = 0) -> None:
        self.code = code
        self.message = f"{pointer} {message}" if pointer else message
        self.pointer = pointer
        self.line = line
        super().__init__(self.message)


def read_row(line: bytes) -> tuple[str, TaskRow]:
    """Return the text of one line and its object. Raises RowRefused."""
    text = _decode(line)
    row = _load(text)
    # A repeated name in an object would lose one of its values silently. Every name is followed by a colon, and so are
    # some quotes inside texts. Only if there are more of these than names, parse again.
    if len(_KEY.findall(text)) > _count_keys(row):
        json.loads(text, object_pairs_hook=_refuse_repeated)
    return text, row


_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def kind_of(value: object) -> str:
    return _KINDS.get(type(value), "null")


def expect(value: object, kind: type[Expected], wanted: str, pointer: str) -> Expected:
    """Return the value if it has the type. Raises RowRefused."""
    if not isinstance(value, kind):
        raise wrong_type(pointer, wanted, value)
    return value


def wrong_type(pointer: str, wanted: str, value: object) -> RowRefused:
    return RowRefused("wrong_type", f"must be {wanted}, not {kind_of(value)}", pointer=pointer)


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        bad = line[error.start]
        raise RowRefused("not_utf8", f"byte {error.start + 1} (0x{bad:02x}) is not UTF-8") from None


def _load(text: str) -> TaskRow:
    try:
        row = orjson.loads(text)
    except JSONDecodeError as error:
        if "recursion" in error.msg.lower() or "depth" in error.msg.lower():
            raise RowRefused("too_deep", f"nested deeper than {MAX_DEPTH} levels") from None
        if "infinity" in error.msg or _NOT_FINITE.match(text, error.pos):
            message = f"a number that is not finite, or beyond 1.8e308 (column {error.colno})"
            raise RowRefused("not_finite", message) from None
        raise RowRefused("not_json", f"not JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(row, dict):
        raise RowRefused("wrong_type", f"the line holds {kind_of(row)}, not a JSON object")
    # The number of brackets limits the depth, so few lines need the check.
    if text.count("{") + text.count("[") > MAX_DEPTH:
        check_depth(row)
    return row


_NOT_FINITE = re.compile(r"-?(NaN|Infinity)")
_KEY = re.compile(r'"\s*:')


def _count_keys(row: TaskRow) -> int:
    count = 0
    waiting: list[Any] = [row]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict):
            count += len(holder)
            holder = holder.values()
        waiting += [value for value in holder if isinstance(value, dict | list)]
    return count


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise RowRefused("duplicate_key", f"the name {cut(name, 80)!r} is repeated in one object")
    return names


def check_depth(row: TaskRow) -> None:
    """Raise RowRefused for deep nesting."""
    level: list[Any] = [row]
    for _ in range(MAX_DEPTH):
        values = [value for holder in level for value in (holder.values() if isinstance(holder, dict) else holder)]
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise RowRefused("too_deep", f"nested deeper than {MAX_DEPTH} levels")
