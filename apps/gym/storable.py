"""Values that every database takes: PostgreSQL stores neither a zero byte nor half a surrogate pair, SQLite does; whole
numbers of more than 64 bits are JSON that many readers do not take, our own among them; a number beyond 1.8e308 is read
as infinity, which JSON cannot spell."""

import math
import re
from typing import Any

from apps.gym.redaction.shortening import cut

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

_LOWEST, _BEYOND = -(2**63), 2**64

Path = tuple[str | int, ...]
REFUSAL = (
    "This holds a zero byte, half a surrogate pair, a whole number beyond 64 bits or a number that is not finite: it "
    "cannot be stored."
)


def clean_line(text: str, limit: int) -> str:
    """One line of at most `limit` characters, without control characters: for what strangers say."""
    return _NOT_SHOWN.sub(" ", cut(text, limit))


def clean_names(values: dict[str, float]) -> dict[str, float]:
    """The same with names that can be stored."""
    return {_UNSTORABLE.sub("\ufffd", name): value for name, value in values.items()}


def read_whole(digits: str) -> int | float:
    """A whole number of a stored JSON text; beyond 64 bits as a float, which every writer of JSON takes."""
    number = int(digits)
    return number if _LOWEST <= number < _BEYOND else float(number)


def bound_numbers(value: Any) -> Any:
    """The same, in a copy, with whole numbers beyond 64 bits as floats, or as text where no float is as large."""
    if isinstance(value, dict):
        return {name: bound_numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [bound_numbers(one) for one in value]
    if isinstance(value, int) and not _LOWEST <= value < _BEYOND:
        return float(value) if abs(value) < 10**308 else "a number beyond 1e308"
    return value


def find_unstorable(value: Any) -> Path | None:
    """Where in a JSON value the first text or number is that cannot be stored; of a name, where its object is."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    # No recursion: how deep strangers nest is theirs to say.
    while waiting:
        path, one = waiting.pop()
        if isinstance(one, str) and _UNSTORABLE.search(one):
            return path
        if isinstance(one, int) and not _LOWEST <= one < _BEYOND:
            return path
        if isinstance(one, float) and not math.isfinite(one):
            return path
        if isinstance(one, dict):
            waiting += [((*path, name), member) for name, member in reversed(one.items())]
            waiting += [(path, name) for name in one]
        elif isinstance(one, list):
            waiting += [((*path, index), member) for index, member in reversed(list(enumerate(one)))]
    return None
