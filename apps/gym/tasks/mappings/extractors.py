r"""Extractors of mappings: take the final answer, or one value, out of a cell.

`####` takes the text after the last line that begins so, as in GSM8K. `\boxed{}` takes the content of the last box.
`/a/0` is a JSON pointer (RFC 6901) into the value, or into its JSON text. `regex:…` takes the first group of the last
match, or the whole match; its syntax is that of RE2, which takes linear time.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import re2

from apps.gym.answer_texts import last_boxed
from apps.gym.redaction.shortening import cut
from apps.gym.tasks.final_answers import after_hashes

HASHES, BOXED, PATTERN = "####", "\\boxed{}", "regex:"
MAX_PATTERN = 2_000
Extractor = Callable[[Any], Any]
"""Returns the extracted value, or None if there is none."""


class ExtractorRefused(Exception):
    """Raised for an invalid extractor, with the problem and the remedy as message."""


@lru_cache(maxsize=256)
def read_extractor(text: str) -> Extractor:
    """Return the extractor that the text names. Raises ExtractorRefused."""
    if text == HASHES:
        return _of_text(after_hashes)
    if text == BOXED:
        return _of_text(last_boxed)
    if text.startswith("/"):
        return _pointer(text)
    if text.startswith(PATTERN):
        return _pattern(text.removeprefix(PATTERN))
    raise ExtractorRefused(
        f"Unknown extractor “{cut(text, 60)}”. Write {HASHES}, {BOXED}, {PATTERN}… or a JSON pointer."
    )


def _of_text(find: Callable[[str], str | None]) -> Extractor:
    return lambda value: find(value) if isinstance(value, str) else None


def _pointer(pointer: str) -> Extractor:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]

    def find(value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError):
                return None
        for step in steps:
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
                value = value[int(step)]
            else:
                return None
        return value

    return find


def _pattern(pattern: str) -> Extractor:
    if not pattern or len(pattern) > MAX_PATTERN:
        raise ExtractorRefused(f"Give a pattern of 1 to {MAX_PATTERN:,} characters after {PATTERN}")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ExtractorRefused(f"Invalid pattern: {told}. Look-around and back-references are not supported.") from None

    def find(text: str) -> str | None:
        last = deque(compiled.finditer(text), maxlen=1)
        found = last[0][1 if compiled.groups else 0] if last else None
        return found.strip() or None if found else None

    return _of_text(find)
