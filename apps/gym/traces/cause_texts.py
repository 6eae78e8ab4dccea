"""Why an attempt failed, as texts that are equal for equal causes: numbers, ids and quoted strings are replaced."""

import re
from collections.abc import Iterable
from typing import Literal, get_args

from apps.gym.storable import clean_line

Source = Literal["verifier", "tool", "error"]
"""The verifier's explanation, the last tool error, or the error that ended the attempt."""
SOURCES: tuple[Source, ...] = get_args(Source)
MAX_LENGTH = 300
"""Characters of a normalised text."""
_READ = 2_000
"""Characters of the original text that are normalised."""

_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)|‘[^’\n]*’(?!\w)")
_ID = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # UUIDs
    r"|\b0x[0-9a-f]+\b"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"  # hashes
    r"|\b[a-z]+_(?=[a-z]*[0-9])[0-9a-z]{6,}\b",  # ids with a prefix: call_8Kd2vTq0
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)(?:e[-+]?[0-9]+)?(?!\w)", re.IGNORECASE
)


def normalise_cause(text: str, values: Iterable[object] = ()) -> str:
    """Return the text in one line of at most MAX_LENGTH characters.

    Quoted strings and the texts among `values`, such as the answer that a verifier compared, become “…”, ids become ID,
    and numbers N.
    """
    text = text[:_READ]
    known = sorted({value for value in values if isinstance(value, str) and value}, key=len, reverse=True)
    if known:
        text = re.sub(rf"(?<!\w)(?:{'|'.join(map(re.escape, known))})(?!\w)", "“…”", text)
    text = _QUOTED.sub("“…”", text)
    text = _NUMBER.sub("N", _ID.sub("ID", text))
    return clean_line(" ".join(text.split())[:MAX_LENGTH], MAX_LENGTH)
