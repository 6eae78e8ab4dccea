"""Keep values within what every supported database can store.

PostgreSQL stores neither a NUL byte nor half a surrogate pair, unlike SQLite. Many JSON readers, including GymWeb's,
reject integers of more than 64 bits. Python reads numbers beyond 1.8e308 as infinity, which JSON cannot express.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from apps.gym.redaction.shortening import cut

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

_LOWEST, _BEYOND = -(2**63), 2**64

Path = tuple[str | int, ...]
REFUSAL = (
    "This cannot be stored: it contains a NUL character, an unpaired surrogate, an integer "
    "beyond 64 bits or a non-finite number. Remove or replace it."
)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return True for a finite number, but not for True and False."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def clean_line(text: str, limit: int) -> str:
    """Return untrusted text as one line of at most `limit` characters, without control characters."""
    return _CONTROL_CHARACTERS.sub(" ", cut(text, limit))


def clean_names(values: dict[str, float]) -> dict[str, float]:
    """Return the values with characters that cannot be stored replaced in their names."""
    return {_UNSTORABLE.sub("\ufffd", name): value for name, value in values.items()}


def parse_integer(digits: str) -> int | float:
    """Parse an integer of stored JSON, as a float beyond 64 bits: every JSON writer accepts that."""
    number = int(digits)
    return number if _LOWEST <= number < _BEYOND else float(number)


def bound_numbers(value: Any) -> Any:
    """Return a copy in which integers beyond 64 bits are floats, or text if they exceed the range of floats."""
    if isinstance(value, dict):
        return {name: bound_numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [bound_numbers(one) for one in value]
    if isinstance(value, int) and not _LOWEST <= value < _BEYOND:
        return float(value) if abs(value) < 10**308 else "a number beyond 1e308"
    return value


def walk_json(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield a JSON value and every nested value, each with its path.

    Not recursive, because untrusted input may be nested to any depth.
    """
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, one = waiting.pop()
        yield path, one
        if isinstance(one, dict):
            waiting += [((*path, name), member) for name, member in reversed(one.items())]
        elif isinstance(one, list | tuple):
            waiting += [((*path, index), member) for index, member in reversed(list(enumerate(one)))]


def find_unstorable(value: Any) -> Path | None:
    """Return the path of the first text or number that cannot be stored. For a key, return the path of its object."""
    return next((path for path, one in walk_json(value) if _is_unstorable(one)), None)


def _is_unstorable(one: Any) -> bool:
    if isinstance(one, str):
        return _UNSTORABLE.search(one) is not None
    if isinstance(one, int):
        return not _LOWEST <= one < _BEYOND
    if isinstance(one, float):
        return not math.isfinite(one)
    return isinstance(one, dict) and any(map(_is_unstorable, one))
