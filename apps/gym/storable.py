"""Values that every database takes: PostgreSQL stores neither a zero byte nor half a surrogate pair, SQLite does; whole
numbers of more than 64 bits are JSON that many readers do not take, our own among them; a number beyond 1.8e308 is read
as infinity, which JSON cannot spell."""

import math
import re
from typing import Any

from apps.gym.redaction.shortening import cut

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

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


def find_unstorable(value: Any) -> Path | None:
    """Where in a JSON value the first text or number is that cannot be stored; of a name, where its object is."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    # No recursion: how deep strangers nest is theirs to say.
    while waiting:
        path, one = waiting.pop()
        if isinstance(one, str) and _UNSTORABLE.search(one):
            return path
        if isinstance(one, int) and not -(2**63) <= one < 2**64:
            return path
        if isinstance(one, float) and not math.isfinite(one):
            return path
        if isinstance(one, dict):
            waiting += [((*path, name), member) for name, member in reversed(one.items())]
            waiting += [(path, name) for name in one]
        elif isinstance(one, list):
            waiting += [((*path, index), member) for index, member in reversed(list(enumerate(one)))]
    return None
