"""Text that every database takes: PostgreSQL stores neither a zero byte nor half a surrogate pair, SQLite does."""

import re
from collections.abc import Iterator
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Path = tuple[str | int, ...]


def clean_line(text: str, limit: int) -> str:
    """One line of at most `limit` characters, without control characters: for what strangers say."""
    return _NOT_SHOWN.sub(" ", text[:limit])


def find_unstorable(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where in a JSON value there is text, as a name or as a value, that cannot be stored."""
    if isinstance(value, str):
        if _UNSTORABLE.search(value):
            yield path
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from find_unstorable(name, path)
            yield from find_unstorable(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from find_unstorable(member, (*path, index))
